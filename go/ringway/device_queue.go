//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Keeps the transfers that a shard has in one device below the size of the device's queue. Beyond
// that, the kernel makes the thread that submits wait, on ext4 and XFS also with RWF_NOWAIT, and
// everything that has submitted to the same ring waits with it (submit_waits.go). Transfers that
// would be too many wait in the shard, in order.

package ringway

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// queueShare of a device's queue is for the program. The rest is for others, and for schedulers
	// that leave a part of it to some kinds of requests.
	queueShare, queueShareOf = 3, 4
	// deviceHungAfter is how long a device completes nothing before plain calls make the transfers
	// that wait for it.
	deviceHungAfter = time.Second
)

// blockQueue is the request queue of a disk. Its partitions share it.
type blockQueue struct {
	requests int // nr_requests: what the queue holds.
}

// blockQueues has the queues by the disk's directory in sysfs.
var blockQueues struct {
	sync.Mutex
	all map[string]*blockQueue
}

// blockDevice returns the device number of a file's device.
func blockDevice(fd int) (major, minor uint64, ok bool) {
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) != nil {
		return 0, 0, false
	}
	device := uint64(stat.Dev)
	if stat.Mode&syscall.S_IFMT == syscall.S_IFBLK {
		device = uint64(stat.Rdev)
	}
	major = device>>8&0xfff | device>>32&^0xfff
	minor = device&0xff | device>>12&^0xff
	return major, minor & 0xffffffff, true
}

// blockQueueOf returns the queue of a file's disk, or nil if there is none: a file system without a
// device, or over several.
func blockQueueOf(fd int) *blockQueue {
	major, minor, ok := blockDevice(fd)
	if !ok || major == 0 {
		return nil
	}
	device, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", major, minor))
	if err != nil {
		return nil
	}
	if _, err := os.Stat(device + "/partition"); err == nil {
		device = filepath.Dir(device)
	}
	blockQueues.Lock()
	defer blockQueues.Unlock()
	if q, known := blockQueues.all[device]; known {
		return q
	}
	n := readNumber(device + "/queue/nr_requests")
	if n == 0 {
		return nil
	}
	q := &blockQueue{requests: n}
	if blockQueues.all == nil {
		blockQueues.all = make(map[string]*blockQueue)
	}
	blockQueues.all[device] = q
	return q
}

// readNumber reads a number from a file of sysfs. It is 0 if there is none.
func readNumber(name string) int {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// deviceLimit returns how many transfers each of some shards has in a device at most.
func deviceLimit(requests, shards int) int {
	return max(requests*queueShare/queueShareOf/shards, 1)
}

// deviceQueue is what a shard has in a device.
type deviceQueue struct {
	of     *blockQueue
	limit  int
	used   int         // Transfers that were admitted, and are not complete.
	held   requestList // Transfers that wait.
	served time.Time   // When a transfer was complete, or the first one began to wait.
}

// deviceQueues is what a shard has in its devices. The shard's lock is held. The zero value limits
// nothing.
type deviceQueues struct {
	shards int
	all    []*deviceQueue
	held   int // Operations that wait: a request with a linked one counts twice.
}

// of returns the queue for a request, or nil if there is no limit.
func (d *deviceQueues) of(r *request) *deviceQueue {
	if d.shards == 0 || r.file == nil || !r.opcode.isTransfer() || r.file.facts.queue == nil {
		return nil
	}
	of := r.file.facts.queue
	for _, q := range d.all {
		if q.of == of {
			return q
		}
	}
	q := &deviceQueue{of: of, limit: deviceLimit(of.requests, d.shards)}
	d.all = append(d.all, q)
	return q
}

// admit reports whether a request may be submitted now. Else it waits here.
func (d *deviceQueues) admit(r *request) bool {
	q := d.of(r)
	switch {
	case q == nil:
		return true
	case q.used < q.limit && q.held.first == nil:
		q.used++
		r.admitted = true
		return true
	case q.held.first == nil:
		q.served = time.Now()
	}
	r.state = stateHeld
	q.held.add(r)
	d.held += r.count()
	return false
}

// release records that an admitted request is complete. It returns a request that may be submitted
// instead, or nil.
func (d *deviceQueues) release(r *request) *request {
	if !r.admitted {
		return nil
	}
	r.admitted = false
	q := d.of(r)
	q.used--
	next := q.held.first
	if next == nil {
		return nil
	}
	q.served = time.Now()
	d.remove(next)
	q.used++
	next.admitted = true
	return next
}

// remove removes a request that waits.
func (d *deviceQueues) remove(r *request) {
	d.of(r).held.remove(r)
	d.held -= r.count()
	r.state = stateIdle
}

// takeHeld removes the requests that wait: for devices that complete nothing, or all.
func (d *deviceQueues) takeHeld(now time.Time, everything bool) (all []*request) {
	for _, q := range d.all {
		if !everything && now.Sub(q.served) < deviceHungAfter {
			continue
		}
		for r := q.held.first; r != nil; r = q.held.first {
			d.remove(r)
			all = append(all, r)
		}
	}
	return all
}
