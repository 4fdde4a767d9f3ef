//go:build linux

// The kernel ABI from include/uapi/linux/io_uring.h: numbers and layouts only. The numbers of the
// system calls are in sysnum*.go. abi_test.go compares all of them with the installed headers.

package ring

import "unsafe"

const (
	offSQRing = 0
	offSQEs   = 0x10000000
)

// Flags of io_uring_setup(2).
const (
	setupIOPoll       = 1 << 0
	setupSQPoll       = 1 << 1
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

// Features that io_uring_setup(2) reports.
const (
	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1
	featExtArg     = 1 << 8
)

// Flags of io_uring_enter(2).
const (
	enterGetEvents = 1 << 0
	enterSQWakeup  = 1 << 1
	enterSQWait    = 1 << 2
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
	// FlagBuffer means that the kernel selected a buffer of a group; [BufferRing.Buffer] returns
	// it.
	FlagBuffer = 1 << 0
	// FlagMore means that the request will complete again.
	FlagMore = 1 << 1
	// FlagSockNonempty means that the socket has more data to receive. Linux 5.19.
	FlagSockNonempty = 1 << 2
	// FlagNotification marks the second completion of a zero-copy send: the kernel no longer reads
	// the buffer. Linux 6.0.
	FlagNotification = 1 << 3

	bufferShift = 16
)

// Opcode identifies an operation.
type Opcode uint8

// The operations of this package, each with the first kernel that supports it.
const (
	OpNop            Opcode = 0  // 5.1
	OpReadv          Opcode = 1  // 5.1
	OpWritev         Opcode = 2  // 5.1
	OpFsync          Opcode = 3  // 5.1
	OpReadFixed      Opcode = 4  // 5.1
	OpWriteFixed     Opcode = 5  // 5.1
	OpPollAdd        Opcode = 6  // 5.1
	OpPollRemove     Opcode = 7  // 5.1
	OpSyncFileRange  Opcode = 8  // 5.2
	OpSendMsg        Opcode = 9  // 5.3
	OpRecvMsg        Opcode = 10 // 5.3
	OpTimeout        Opcode = 11 // 5.4
	OpTimeoutRemove  Opcode = 12 // 5.5
	OpAccept         Opcode = 13 // 5.5
	OpAsyncCancel    Opcode = 14 // 5.5
	OpLinkTimeout    Opcode = 15 // 5.5
	OpConnect        Opcode = 16 // 5.5
	OpFallocate      Opcode = 17 // 5.6
	OpClose          Opcode = 19 // 5.6
	OpStatx          Opcode = 21 // 5.6
	OpRead           Opcode = 22 // 5.6
	OpWrite          Opcode = 23 // 5.6
	OpFadvise        Opcode = 24 // 5.6
	OpMadvise        Opcode = 25 // 5.6
	OpSend           Opcode = 26 // 5.6
	OpRecv           Opcode = 27 // 5.6
	OpOpenat2        Opcode = 28 // 5.6
	OpSplice         Opcode = 30 // 5.7
	OpTee            Opcode = 33 // 5.8
	OpShutdown       Opcode = 34 // 5.11
	OpRenameat       Opcode = 35 // 5.11
	OpUnlinkat       Opcode = 36 // 5.11
	OpMkdirat        Opcode = 37 // 5.15
	OpSymlinkat      Opcode = 38 // 5.15
	OpLinkat         Opcode = 39 // 5.15
	OpMsgRing        Opcode = 40 // 5.18
	OpSocket         Opcode = 45 // 5.19
	OpSendZC         Opcode = 47 // 6.0
	OpSendMsgZC      Opcode = 48 // 6.1
	OpReadMultishot  Opcode = 49 // 6.7
	OpFixedFDInstall Opcode = 54 // 6.8
	OpFtruncate      Opcode = 55 // 6.9
	OpBind           Opcode = 56 // 6.11
	OpListen         Opcode = 57 // 6.11
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
	registerFiles2         = 13
	registerBuffers2       = 15
	registerBuffersUpdate  = 16
	registerIOWQMaxWorkers = 19
	registerPbufRing       = 22
	unregisterPbufRing     = 23
	registerSyncCancel     = 24
	registerFileAllocRange = 25

	registerSparse = 1 << 0
)

// Flags of single operations.
const (
	fsyncDatasync    = 1 << 0
	timeoutAbs       = 1 << 0
	timeoutUpdate    = 1 << 1
	timeoutRealtime  = 1 << 3
	linkUpdate       = 1 << 4
	timeoutMultishot = 1 << 6
	cancelAll        = 1 << 0
	cancelFD         = 1 << 1
	cancelAny        = 1 << 2
	acceptMultishot  = 1 << 0
	recvMultishot    = 1 << 1
	pollAddMulti     = 1 << 0
	pollUpdateEvents = 1 << 1
	messageData      = 0
	probeSupported   = 1 << 0
	indexAlloc       = ^uint32(0)
)

const (
	probeOps                = 256
	maxEntries       uint32 = 32768
	maxBufferEntries        = 32768
)

// sqe is struct io_uring_sqe.
type sqe struct {
	opcode      Opcode
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
	fileIndex   uint32 // Or the descriptor that a splice reads.
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

// filesUpdate is struct io_uring_files_update.
type filesUpdate struct {
	offset, _ uint32
	fds       uint64
}

// rsrcRegister is struct io_uring_rsrc_register.
type rsrcRegister struct {
	nr, flags uint32
	_         uint64
	data      uint64
	tags      uint64
}

// rsrcUpdate is struct io_uring_rsrc_update2.
type rsrcUpdate struct {
	offset, _ uint32
	data      uint64
	tags      uint64
	nr, _     uint32
}

// indexRange is struct io_uring_file_index_range.
type indexRange struct {
	off, len uint32
	_        uint64
}

// syncCancel is struct io_uring_sync_cancel_reg.
type syncCancel struct {
	addr  uint64
	fd    int32
	flags uint32
	span  timespec
	_     [4]uint64
}

// probeOp is struct io_uring_probe_op.
type probeOp struct {
	op, _ uint8
	flags uint16
	_     uint32
}

// probeTable is struct io_uring_probe with an entry for every operation.
type probeTable struct {
	last, ops uint8
	_         uint16
	_         [3]uint32
	entries   [probeOps]probeOp
}

// bufferEntry is struct io_uring_buf. The reserved field of the first entry is the tail of the
// ring.
type bufferEntry struct {
	addr    uint64
	len     uint32
	id, res uint16
}

// bufferRegistration is struct io_uring_buf_reg.
type bufferRegistration struct {
	addr         uint64
	entries      uint32
	group, flags uint16
	_            [3]uint64
}

// A struct of the wrong size does not compile.
var (
	_ [64]byte  = [unsafe.Sizeof(sqe{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(cqe{})]byte{}
	_ [120]byte = [unsafe.Sizeof(params{})]byte{}
	_ [24]byte  = [unsafe.Sizeof(geteventsArg{})]byte{}
	_ [256]byte = [unsafe.Sizeof(Statx{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(rsrcRegister{})]byte{}
	_ [64]byte  = [unsafe.Sizeof(syncCancel{})]byte{}
	_ [32]byte  = [unsafe.Sizeof(rsrcUpdate{})]byte{}
	_ [40]byte  = [unsafe.Sizeof(bufferRegistration{})]byte{}
)
