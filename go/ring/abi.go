//go:build linux

// The kernel's side of the interface, from include/uapi/linux/io_uring.h: numbers and layouts, nothing else.

package ring

import "unsafe"

// The system calls have the same numbers on every architecture.
const (
	sysSetup    = 425
	sysEnter    = 426
	sysRegister = 427
)

const (
	offSQRing = 0
	offSQEs   = 0x10000000
)

// Flags of io_uring_setup(2).
const (
	setupIOPoll       = 1 << 0
	setupSQPoll       = 1 << 1
	setupSQAff        = 1 << 2
	setupCQSize       = 1 << 3
	setupClamp        = 1 << 4
	setupAttachWQ     = 1 << 5
	setupSubmitAll    = 1 << 7
	setupCoopTaskrun  = 1 << 8
	setupTaskrunFlag  = 1 << 9
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
	setupNoSQArray    = 1 << 16
)

// Features that io_uring_setup(2) tells.
const (
	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1
	featExtArg     = 1 << 8
)

// Flags of io_uring_enter(2).
const (
	enterGetEvents = 1 << 0
	enterSQWakeup  = 1 << 1
	enterExtArg    = 1 << 3
)

// Flags of the submission queue.
const (
	sqNeedWakeup = 1 << 0
	sqCQOverflow = 1 << 1
	sqTaskrun    = 1 << 2
)

// Flags of an entry.
const (
	sqeFixedFile    = 1 << 0
	sqeDrain        = 1 << 1
	sqeLink         = 1 << 2
	sqeHardlink     = 1 << 3
	sqeAsync        = 1 << 4
	sqeBufferSelect = 1 << 5
)

// Flags of a completion.
const (
	// FlagBuffer tells that the kernel chose a buffer; its number is in the upper half of the flags.
	FlagBuffer = 1 << 0
	// FlagMore tells that the same request will complete again.
	FlagMore = 1 << 1

	bufferShift = 16
)

// Op is an operation that the kernel knows.
type Op uint8

// The operations of this package, with the first kernel that has each.
const (
	OpNop           Op = 0  // 5.1
	OpReadv         Op = 1  // 5.1
	OpWritev        Op = 2  // 5.1
	OpFsync         Op = 3  // 5.1
	OpReadFixed     Op = 4  // 5.1
	OpWriteFixed    Op = 5  // 5.1
	OpPollAdd       Op = 6  // 5.1
	OpPollRemove    Op = 7  // 5.1
	OpSyncFileRange Op = 8  // 5.2
	OpSendMsg       Op = 9  // 5.3
	OpRecvMsg       Op = 10 // 5.3
	OpTimeout       Op = 11 // 5.4
	OpTimeoutRemove Op = 12 // 5.5
	OpAccept        Op = 13 // 5.5
	OpAsyncCancel   Op = 14 // 5.5
	OpLinkTimeout   Op = 15 // 5.5
	OpConnect       Op = 16 // 5.5
	OpFallocate     Op = 17 // 5.6
	OpClose         Op = 19 // 5.6
	OpStatx         Op = 21 // 5.6
	OpRead          Op = 22 // 5.6
	OpWrite         Op = 23 // 5.6
	OpFadvise       Op = 24 // 5.6
	OpSend          Op = 26 // 5.6
	OpRecv          Op = 27 // 5.6
	OpOpenat2       Op = 28 // 5.6
	OpShutdown      Op = 34 // 5.11
	OpRenameat      Op = 35 // 5.11
	OpUnlinkat      Op = 36 // 5.11
	OpMkdirat       Op = 37 // 5.15
	OpSymlinkat     Op = 38 // 5.15
	OpLinkat        Op = 39 // 5.15
	OpSocket        Op = 45 // 5.19
	OpFtruncate     Op = 55 // 6.9
	OpBind          Op = 56 // 6.11
	OpListen        Op = 57 // 6.11
)

// Operations of io_uring_register(2).
const (
	registerBuffers        = 0
	unregisterBuffers      = 1
	registerFiles          = 2
	unregisterFiles        = 3
	registerEventfd        = 4
	unregisterEventfd      = 5
	registerFilesUpdate    = 6
	registerProbe          = 8
	registerIOWQMaxWorkers = 19
	registerPbufRing       = 22
	unregisterPbufRing     = 23
)

const (
	fsyncDatasync = 1 << 0

	timeoutAbs              = 1 << 0
	timeoutMultishot        = 1 << 6
	cancelAll               = 1 << 0
	cancelFD                = 1 << 1
	cancelAny               = 1 << 2
	acceptMultishot         = 1 << 0
	recvMultishot           = 1 << 1
	pollAddMulti            = 1 << 0
	pollUpdateEvents        = 1 << 1
	probeSupported          = 1 << 0
	probeOps                = 256
	maxEntries       uint32 = 32768
)

// sqe is struct io_uring_sqe.
type sqe struct {
	opcode      Op
	flags       uint8
	ioprio      uint16
	fd          int32
	off         uint64
	addr        uint64
	len         uint32
	opFlags     uint32
	userData    uint64
	bufIndex    uint16 // or the buffer group
	personality uint16
	fileIndex   int32
	addr3       uint64
	_           uint64
}

// cqe is struct io_uring_cqe.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

type sqOffsets struct {
	head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
	_                                                           uint64
}

type cqOffsets struct {
	head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
	_                                                           uint64
}

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sqOff                                                                  sqOffsets
	cqOff                                                                  cqOffsets
}

// timespec is struct __kernel_timespec, the same on every architecture.
type timespec struct {
	sec, nsec int64
}

// geteventsArg is struct io_uring_getevents_arg.
type geteventsArg struct {
	sigmask   uint64
	sigmaskSz uint32
	_         uint32
	ts        uint64
}

// openHow is struct open_how.
type openHow struct {
	flags, mode, resolve uint64
}

// The kernel checks none of these sizes for us.
var (
	_ [64]byte  = [unsafe.Sizeof(sqe{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(cqe{})]byte{}
	_ [120]byte = [unsafe.Sizeof(params{})]byte{}
	_ [24]byte  = [unsafe.Sizeof(geteventsArg{})]byte{}
	_ [256]byte = [unsafe.Sizeof(Statx{})]byte{}
)
