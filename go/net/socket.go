//go:build linux

package net

// A descriptor and who uses it; options; addresses; the raw connection.

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// socket is a descriptor that is closed when nobody uses it: its number may be another file's at once.
type socket struct {
	fd      int
	network string
	users   sync.RWMutex // Read-locked by those who use fd, and locked for good by who closes it.
	closing atomic.Bool
}

// begin counts a user in.
func (k *socket) begin() error {
	if k.closing.Load() || !k.users.TryRLock() {
		return net.ErrClosed
	}
	return nil
}

// end counts a user out.
func (k *socket) end() { k.users.RUnlock() }

// close ends operations, waits for those who use the descriptor, and closes it.
func (k *socket) close(directions ...*direction) error {
	if k.closing.Swap(true) {
		return net.ErrClosed
	}
	for _, d := range directions {
		d.close()
	}
	k.users.Lock()
	directions[0].shard.settle() // So that the socket ends with its descriptor, and not some time after.
	return os.NewSyscallError("close", syscall.Close(k.fd))
}

// with calls f with the descriptor, which stays open meanwhile.
func (k *socket) with(call string, f func(fd int) error) error {
	if err := k.begin(); err != nil {
		return err
	}
	defer k.end()
	return named(call, f(k.fd))
}

// named has an errno tell by which system call it came.
func named(call string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		return os.NewSyscallError(call, errno)
	}
	return err
}

// setInt is setsockopt(2).
func (k *socket) setInt(level, option, value int) error {
	return k.with("setsockopt", func(fd int) error { return syscall.SetsockoptInt(fd, level, option, value) })
}

// file is a duplicate.
func (k *socket) file(name string) (f *os.File, err error) {
	err = k.with("fcntl", func(fd int) error {
		own, err := duplicate(fd)
		if err == nil {
			f = os.NewFile(uintptr(own), name)
		}
		return err
	})
	return f, err
}

func duplicate(fd int) (int, error) {
	own, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(own), nil
}

// keepAlive has the kernel probe an idle connection, as the standard package sets it. What the kernel does not know is left
// out, as there.
func keepAlive(fd int, period time.Duration, config net.KeepAliveConfig) {
	if !config.Enable {
		if period < 0 {
			return
		}
		config = net.KeepAliveConfig{Enable: true, Idle: period}
	}
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1)
	_ = keepAliveTimes(fd, config)
}

// keepAliveTimes sets what is not negative; 0 stands for the usual value.
func keepAliveTimes(fd int, config net.KeepAliveConfig) error {
	const usual = 15 * time.Second
	for _, o := range []struct {
		option int
		value  time.Duration
		usual  time.Duration
	}{
		{syscall.TCP_KEEPIDLE, config.Idle, usual},
		{syscall.TCP_KEEPINTVL, config.Interval, usual},
		{syscall.TCP_KEEPCNT, time.Duration(config.Count) * time.Second, 9 * time.Second},
	} {
		if o.value < 0 {
			continue
		}
		if o.value == 0 {
			o.value = o.usual
		}
		seconds := int((o.value + time.Second - 1) / time.Second)
		if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, o.option, seconds); err != nil {
			return err
		}
	}
	return nil
}

// address of a socket, as the kernel tells it; nil if it does not.
func address(sa syscall.Sockaddr, err error) net.Addr {
	if err != nil {
		return nil
	}
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return &net.TCPAddr{IP: sa.Addr[:], Port: sa.Port}
	case *syscall.SockaddrInet6:
		return &net.TCPAddr{IP: sa.Addr[:], Port: sa.Port, Zone: zoneName(sa.ZoneId)}
	case *syscall.SockaddrUnix:
		return &net.UnixAddr{Name: sa.Name, Net: "unix"}
	}
	return nil
}

// peerAddress is what an accept told, if it was IP.
func peerAddress(peer netip.AddrPort) net.Addr {
	if !peer.IsValid() {
		return nil
	}
	scope, _ := strconv.ParseUint(peer.Addr().Zone(), 10, 32)
	return &net.TCPAddr{IP: peer.Addr().AsSlice(), Port: int(peer.Port()), Zone: zoneName(uint32(scope))}
}

// zoneName is the name of an interface, or its number where it has none.
func zoneName(scope uint32) string {
	if scope == 0 {
		return ""
	}
	if i, err := net.InterfaceByIndex(int(scope)); err == nil {
		return i.Name
	}
	return strconv.Itoa(int(scope))
}

// zoneNumber is the other way round; 0 for none.
func zoneNumber(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	n, _ := strconv.ParseUint(zone, 10, 32)
	return uint32(n)
}

// sockaddr of an address in a family.
func sockaddr(family int, a *net.TCPAddr) (syscall.Sockaddr, error) {
	to, err := addrPort(family, a)
	if err != nil {
		return nil, err
	}
	if family == syscall.AF_INET {
		return &syscall.SockaddrInet4{Port: a.Port, Addr: to.Addr().As4()}, nil
	}
	return &syscall.SockaddrInet6{Port: a.Port, Addr: to.Addr().As16(), ZoneId: zoneNumber(a.Zone)}, nil
}

// addrPort is an address in a family; no address stands for all, or for this machine. A zone is a number.
func addrPort(family int, a *net.TCPAddr) (netip.AddrPort, error) {
	ip, _ := netip.AddrFromSlice(a.IP)
	if family == syscall.AF_INET {
		if len(a.IP) == 0 {
			ip = netip.IPv4Unspecified()
		}
		if ip = ip.Unmap(); !ip.Is4() {
			return netip.AddrPort{}, &net.AddrError{Err: "non-IPv4 address", Addr: a.IP.String()}
		}
		return netip.AddrPortFrom(ip, uint16(a.Port)), nil
	}
	if len(a.IP) == 0 || ip == netip.IPv4Unspecified() {
		ip = netip.IPv6Unspecified()
	}
	if !ip.IsValid() {
		return netip.AddrPort{}, &net.AddrError{Err: "non-IPv6 address", Addr: a.IP.String()}
	}
	ip = netip.AddrFrom16(ip.As16())
	if scope := zoneNumber(a.Zone); scope != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(scope), 10))
	}
	return netip.AddrPortFrom(ip, uint16(a.Port)), nil
}

// raw is a syscall.RawConn. A listener's has no directions: it is for Control alone, as in the standard package.
type raw struct {
	*socket
	read, write   *direction
	local, remote net.Addr
}

func (r raw) Control(f func(fd uintptr)) error {
	return r.wrap("raw-control", nil, r.local, r.with("", func(fd int) error {
		f(uintptr(fd))
		return nil
	}))
}

// Read calls f until it answers true, and waits in between until there is something to read.
func (r raw) Read(f func(fd uintptr) bool) error {
	return r.wrap("raw-read", r.local, r.remote, r.until(f, r.read, readReady))
}

// Write calls f until it answers true, and waits in between until there is room.
func (r raw) Write(f func(fd uintptr) bool) error {
	return r.wrap("raw-write", r.local, r.remote, r.until(f, r.write, writeReady))
}

func (r raw) until(f func(fd uintptr) bool, d *direction, events uint32) error {
	if d == nil {
		return syscall.EINVAL
	}
	return r.with("poll", func(fd int) error {
		d.turn.Lock()
		defer d.turn.Unlock()
		if err := d.stopped(); err != nil {
			return err
		}
		for !f(uintptr(fd)) {
			if err := d.poll(events); err != nil {
				return err
			}
		}
		return nil
	})
}

func (k *socket) wrap(op string, source, addr net.Addr, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: k.network, Source: source, Addr: addr, Err: err}
}
