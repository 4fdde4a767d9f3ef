//go:build linux

// Compares the numbers and layouts of abi.go with the kernel's header, using a C compiler.

package ring

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// headerNames maps the constants of abi.go to their names in the header; "" marks our own.
var headerNames = map[string]string{
	"sysSetup":               "__NR_io_uring_setup",
	"sysEnter":               "__NR_io_uring_enter",
	"sysRegister":            "__NR_io_uring_register",
	"offSQRing":              "IORING_OFF_SQ_RING",
	"offSQEs":                "IORING_OFF_SQES",
	"setupIOPoll":            "IORING_SETUP_IOPOLL",
	"setupSQPoll":            "IORING_SETUP_SQPOLL",
	"setupCQSize":            "IORING_SETUP_CQSIZE",
	"setupClamp":             "IORING_SETUP_CLAMP",
	"setupAttachWQ":          "IORING_SETUP_ATTACH_WQ",
	"setupSubmitAll":         "IORING_SETUP_SUBMIT_ALL",
	"setupCoopTaskrun":       "IORING_SETUP_COOP_TASKRUN",
	"setupTaskrunFlag":       "IORING_SETUP_TASKRUN_FLAG",
	"setupSingleIssuer":      "IORING_SETUP_SINGLE_ISSUER",
	"setupDeferTaskrun":      "IORING_SETUP_DEFER_TASKRUN",
	"setupNoSQArray":         "IORING_SETUP_NO_SQARRAY",
	"featSingleMmap":         "IORING_FEAT_SINGLE_MMAP",
	"featNoDrop":             "IORING_FEAT_NODROP",
	"featExtArg":             "IORING_FEAT_EXT_ARG",
	"enterGetEvents":         "IORING_ENTER_GETEVENTS",
	"enterSQWakeup":          "IORING_ENTER_SQ_WAKEUP",
	"enterSQWait":            "IORING_ENTER_SQ_WAIT",
	"enterExtArg":            "IORING_ENTER_EXT_ARG",
	"sqNeedWakeup":           "IORING_SQ_NEED_WAKEUP",
	"sqCQOverflow":           "IORING_SQ_CQ_OVERFLOW",
	"sqTaskrun":              "IORING_SQ_TASKRUN",
	"sqeFixedFile":           "IOSQE_FIXED_FILE",
	"sqeDrain":               "IOSQE_IO_DRAIN",
	"sqeLink":                "IOSQE_IO_LINK",
	"sqeHardlink":            "IOSQE_IO_HARDLINK",
	"sqeAsync":               "IOSQE_ASYNC",
	"sqeBufferSelect":        "IOSQE_BUFFER_SELECT",
	"FlagBuffer":             "IORING_CQE_F_BUFFER",
	"FlagMore":               "IORING_CQE_F_MORE",
	"FlagSockNonempty":       "IORING_CQE_F_SOCK_NONEMPTY",
	"FlagNotification":       "IORING_CQE_F_NOTIF",
	"bufferShift":            "IORING_CQE_BUFFER_SHIFT",
	"OpNop":                  "IORING_OP_NOP",
	"OpReadv":                "IORING_OP_READV",
	"OpWritev":               "IORING_OP_WRITEV",
	"OpFsync":                "IORING_OP_FSYNC",
	"OpReadFixed":            "IORING_OP_READ_FIXED",
	"OpWriteFixed":           "IORING_OP_WRITE_FIXED",
	"OpPollAdd":              "IORING_OP_POLL_ADD",
	"OpPollRemove":           "IORING_OP_POLL_REMOVE",
	"OpSyncFileRange":        "IORING_OP_SYNC_FILE_RANGE",
	"OpSendMsg":              "IORING_OP_SENDMSG",
	"OpRecvMsg":              "IORING_OP_RECVMSG",
	"OpTimeout":              "IORING_OP_TIMEOUT",
	"OpTimeoutRemove":        "IORING_OP_TIMEOUT_REMOVE",
	"OpAccept":               "IORING_OP_ACCEPT",
	"OpAsyncCancel":          "IORING_OP_ASYNC_CANCEL",
	"OpLinkTimeout":          "IORING_OP_LINK_TIMEOUT",
	"OpConnect":              "IORING_OP_CONNECT",
	"OpFallocate":            "IORING_OP_FALLOCATE",
	"OpClose":                "IORING_OP_CLOSE",
	"OpStatx":                "IORING_OP_STATX",
	"OpRead":                 "IORING_OP_READ",
	"OpWrite":                "IORING_OP_WRITE",
	"OpFadvise":              "IORING_OP_FADVISE",
	"OpMadvise":              "IORING_OP_MADVISE",
	"OpSend":                 "IORING_OP_SEND",
	"OpRecv":                 "IORING_OP_RECV",
	"OpOpenat2":              "IORING_OP_OPENAT2",
	"OpSplice":               "IORING_OP_SPLICE",
	"OpTee":                  "IORING_OP_TEE",
	"OpShutdown":             "IORING_OP_SHUTDOWN",
	"OpRenameat":             "IORING_OP_RENAMEAT",
	"OpUnlinkat":             "IORING_OP_UNLINKAT",
	"OpMkdirat":              "IORING_OP_MKDIRAT",
	"OpSymlinkat":            "IORING_OP_SYMLINKAT",
	"OpLinkat":               "IORING_OP_LINKAT",
	"OpMsgRing":              "IORING_OP_MSG_RING",
	"OpSocket":               "IORING_OP_SOCKET",
	"OpSendZC":               "IORING_OP_SEND_ZC",
	"OpSendMsgZC":            "IORING_OP_SENDMSG_ZC",
	"OpReadMultishot":        "IORING_OP_READ_MULTISHOT",
	"OpFixedFDInstall":       "IORING_OP_FIXED_FD_INSTALL",
	"OpFtruncate":            "IORING_OP_FTRUNCATE",
	"OpBind":                 "IORING_OP_BIND",
	"OpListen":               "IORING_OP_LISTEN",
	"registerBuffers":        "IORING_REGISTER_BUFFERS",
	"unregisterBuffers":      "IORING_UNREGISTER_BUFFERS",
	"registerFiles":          "IORING_REGISTER_FILES",
	"unregisterFiles":        "IORING_UNREGISTER_FILES",
	"registerEventfd":        "IORING_REGISTER_EVENTFD",
	"unregisterEventfd":      "IORING_UNREGISTER_EVENTFD",
	"registerFilesUpdate":    "IORING_REGISTER_FILES_UPDATE",
	"registerProbe":          "IORING_REGISTER_PROBE",
	"registerFiles2":         "IORING_REGISTER_FILES2",
	"registerBuffers2":       "IORING_REGISTER_BUFFERS2",
	"registerBuffersUpdate":  "IORING_REGISTER_BUFFERS_UPDATE",
	"registerIOWQMaxWorkers": "IORING_REGISTER_IOWQ_MAX_WORKERS",
	"registerPbufRing":       "IORING_REGISTER_PBUF_RING",
	"unregisterPbufRing":     "IORING_UNREGISTER_PBUF_RING",
	"registerSyncCancel":     "IORING_REGISTER_SYNC_CANCEL",
	"registerFileAllocRange": "IORING_REGISTER_FILE_ALLOC_RANGE",
	"registerSparse":         "IORING_RSRC_REGISTER_SPARSE",
	"fsyncDatasync":          "IORING_FSYNC_DATASYNC",
	"timeoutAbs":             "IORING_TIMEOUT_ABS",
	"timeoutUpdate":          "IORING_TIMEOUT_UPDATE",
	"timeoutRealtime":        "IORING_TIMEOUT_REALTIME",
	"linkUpdate":             "IORING_LINK_TIMEOUT_UPDATE",
	"timeoutMultishot":       "IORING_TIMEOUT_MULTISHOT",
	"cancelAll":              "IORING_ASYNC_CANCEL_ALL",
	"cancelFD":               "IORING_ASYNC_CANCEL_FD",
	"cancelAny":              "IORING_ASYNC_CANCEL_ANY",
	"acceptMultishot":        "IORING_ACCEPT_MULTISHOT",
	"recvMultishot":          "IORING_RECV_MULTISHOT",
	"pollAddMulti":           "IORING_POLL_ADD_MULTI",
	"pollUpdateEvents":       "IORING_POLL_UPDATE_EVENTS",
	"messageData":            "IORING_MSG_DATA",
	"probeSupported":         "IO_URING_OP_SUPPORTED",
	"indexAlloc":             "IORING_FILE_INDEX_ALLOC",
	"probeOps":               "",
	"maxEntries":             "",
	"maxBufferEntries":       "",
}

// layout is a struct of the header, with the offsets of its fields by their C names.
type layout struct {
	c      string
	size   uintptr
	fields map[string]uintptr
}

func layouts() []layout {
	var s sqe
	var c cqe
	var p params
	var g geteventsArg
	var x Statx
	var f filesUpdate
	var rr rsrcRegister
	var ru rsrcUpdate
	var ir indexRange
	var sc syncCancel
	var po probeOp
	var pt probeTable
	var be bufferEntry
	var br bufferRegistration
	var oh openHow
	var ts timespec
	at := func(outer, inner uintptr) uintptr { return outer + inner }
	return []layout{
		{"struct io_uring_sqe", unsafe.Sizeof(s), map[string]uintptr{
			"opcode":        unsafe.Offsetof(s.opcode),
			"flags":         unsafe.Offsetof(s.flags),
			"ioprio":        unsafe.Offsetof(s.ioprio),
			"fd":            unsafe.Offsetof(s.fd),
			"off":           unsafe.Offsetof(s.off),
			"addr2":         unsafe.Offsetof(s.off),
			"addr":          unsafe.Offsetof(s.addr),
			"splice_off_in": unsafe.Offsetof(s.addr),
			"len":           unsafe.Offsetof(s.len),
			"rw_flags":      unsafe.Offsetof(s.opFlags),
			"cancel_flags":  unsafe.Offsetof(s.opFlags),
			"user_data":     unsafe.Offsetof(s.userData),
			"buf_index":     unsafe.Offsetof(s.bufIndex),
			"buf_group":     unsafe.Offsetof(s.bufIndex),
			"personality":   unsafe.Offsetof(s.personality),
			"file_index":    unsafe.Offsetof(s.fileIndex),
			"splice_fd_in":  unsafe.Offsetof(s.fileIndex),
			"addr3":         unsafe.Offsetof(s.addr3),
		}},
		{"struct io_uring_cqe", unsafe.Sizeof(c), map[string]uintptr{
			"user_data": unsafe.Offsetof(c.userData), "res": unsafe.Offsetof(c.res),
			"flags": unsafe.Offsetof(c.flags)}},
		{"struct io_uring_params", unsafe.Sizeof(p), map[string]uintptr{
			"sq_entries":      unsafe.Offsetof(p.sqEntries),
			"cq_entries":      unsafe.Offsetof(p.cqEntries),
			"flags":           unsafe.Offsetof(p.flags),
			"sq_thread_cpu":   unsafe.Offsetof(p.sqThreadCPU),
			"sq_thread_idle":  unsafe.Offsetof(p.sqThreadIdle),
			"features":        unsafe.Offsetof(p.features),
			"wq_fd":           unsafe.Offsetof(p.wqFD),
			"sq_off.head":     at(unsafe.Offsetof(p.sqOff), unsafe.Offsetof(p.sqOff.head)),
			"sq_off.tail":     at(unsafe.Offsetof(p.sqOff), unsafe.Offsetof(p.sqOff.tail)),
			"sq_off.flags":    at(unsafe.Offsetof(p.sqOff), unsafe.Offsetof(p.sqOff.flags)),
			"sq_off.array":    at(unsafe.Offsetof(p.sqOff), unsafe.Offsetof(p.sqOff.array)),
			"cq_off.head":     at(unsafe.Offsetof(p.cqOff), unsafe.Offsetof(p.cqOff.head)),
			"cq_off.tail":     at(unsafe.Offsetof(p.cqOff), unsafe.Offsetof(p.cqOff.tail)),
			"cq_off.overflow": at(unsafe.Offsetof(p.cqOff), unsafe.Offsetof(p.cqOff.overflow)),
			"cq_off.cqes":     at(unsafe.Offsetof(p.cqOff), unsafe.Offsetof(p.cqOff.cqes)),
		}},
		{"struct io_uring_getevents_arg", unsafe.Sizeof(g), map[string]uintptr{
			"sigmask": unsafe.Offsetof(g.sigmask), "sigmask_sz": unsafe.Offsetof(g.sigmaskSz),
			"ts": unsafe.Offsetof(g.ts)}},
		{"struct statx", unsafe.Sizeof(x), map[string]uintptr{
			"stx_mask":             unsafe.Offsetof(x.Mask),
			"stx_blksize":          unsafe.Offsetof(x.BlockSize),
			"stx_attributes":       unsafe.Offsetof(x.Attributes),
			"stx_nlink":            unsafe.Offsetof(x.Links),
			"stx_uid":              unsafe.Offsetof(x.UID),
			"stx_gid":              unsafe.Offsetof(x.GID),
			"stx_mode":             unsafe.Offsetof(x.Mode),
			"stx_ino":              unsafe.Offsetof(x.Inode),
			"stx_size":             unsafe.Offsetof(x.Size),
			"stx_blocks":           unsafe.Offsetof(x.Blocks),
			"stx_attributes_mask":  unsafe.Offsetof(x.AttributesMask),
			"stx_atime":            unsafe.Offsetof(x.Accessed),
			"stx_btime":            unsafe.Offsetof(x.Born),
			"stx_ctime":            unsafe.Offsetof(x.Changed),
			"stx_mtime":            unsafe.Offsetof(x.Modified),
			"stx_mtime.tv_nsec":    unsafe.Offsetof(x.Modified) + unsafe.Offsetof(x.Modified.Nsec),
			"stx_rdev_major":       unsafe.Offsetof(x.RdevMajor),
			"stx_dev_minor":        unsafe.Offsetof(x.DevMinor),
			"stx_mnt_id":           unsafe.Offsetof(x.MountID),
			"stx_dio_mem_align":    unsafe.Offsetof(x.DirectMemAlign),
			"stx_dio_offset_align": unsafe.Offsetof(x.DirectOffsetAlign),
		}},
		{"struct io_uring_files_update", unsafe.Sizeof(f),
			map[string]uintptr{"offset": unsafe.Offsetof(f.offset), "fds": unsafe.Offsetof(f.fds)}},
		{"struct io_uring_rsrc_register", unsafe.Sizeof(rr), map[string]uintptr{
			"nr":    unsafe.Offsetof(rr.nr),
			"flags": unsafe.Offsetof(rr.flags),
			"data":  unsafe.Offsetof(rr.data),
			"tags":  unsafe.Offsetof(rr.tags),
		}},
		{"struct io_uring_rsrc_update2", unsafe.Sizeof(ru), map[string]uintptr{
			"offset": unsafe.Offsetof(ru.offset),
			"data":   unsafe.Offsetof(ru.data),
			"tags":   unsafe.Offsetof(ru.tags),
			"nr":     unsafe.Offsetof(ru.nr),
		}},
		{"struct io_uring_file_index_range", unsafe.Sizeof(ir),
			map[string]uintptr{"off": unsafe.Offsetof(ir.off), "len": unsafe.Offsetof(ir.len)}},
		{"struct io_uring_sync_cancel_reg", unsafe.Sizeof(sc), map[string]uintptr{
			"addr":    unsafe.Offsetof(sc.addr),
			"fd":      unsafe.Offsetof(sc.fd),
			"flags":   unsafe.Offsetof(sc.flags),
			"timeout": unsafe.Offsetof(sc.span),
		}},
		{"struct io_uring_probe_op", unsafe.Sizeof(po),
			map[string]uintptr{"op": unsafe.Offsetof(po.op), "flags": unsafe.Offsetof(po.flags)}},
		{"struct io_uring_probe", unsafe.Sizeof(pt) - unsafe.Sizeof(pt.entries), map[string]uintptr{
			"last_op": unsafe.Offsetof(pt.last), "ops_len": unsafe.Offsetof(pt.ops),
			"ops": unsafe.Offsetof(pt.entries)}},
		{"struct io_uring_buf", unsafe.Sizeof(be), map[string]uintptr{
			"addr": unsafe.Offsetof(be.addr),
			"len":  unsafe.Offsetof(be.len),
			"bid":  unsafe.Offsetof(be.id),
			"resv": unsafe.Offsetof(be.res),
		}},
		{"struct io_uring_buf_ring", unsafe.Sizeof(be),
			map[string]uintptr{"tail": unsafe.Offsetof(be.res)}},
		{"struct io_uring_buf_reg", unsafe.Sizeof(br), map[string]uintptr{
			"ring_addr": unsafe.Offsetof(br.addr), "ring_entries": unsafe.Offsetof(br.entries),
			"bgid": unsafe.Offsetof(br.group)}},
		{"struct open_how", unsafe.Sizeof(oh), map[string]uintptr{
			"flags": unsafe.Offsetof(oh.flags), "mode": unsafe.Offsetof(oh.mode),
			"resolve": unsafe.Offsetof(oh.resolve)}},
		{"struct __kernel_timespec", unsafe.Sizeof(ts),
			map[string]uintptr{"tv_sec": unsafe.Offsetof(ts.sec),
				"tv_nsec": unsafe.Offsetof(ts.nsec)}},
	}
}

// constants returns the constants of abi.go, parsed from its source so that none is forgotten.
func constants(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "abi.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := types.Info{Defs: map[*ast.Ident]types.Object{}}
	// Other files are missing: so are types of theirs.
	checker := types.Config{Importer: importer.Default(), Error: func(error) {}}
	_, _ = checker.Check("ring", files, []*ast.File{file}, &info)
	values := map[string]string{}
	for name, object := range info.Defs {
		if c, ok := object.(*types.Const); ok && c.Val().Kind() == constant.Int {
			values[name.Name] = c.Val().ExactString()
		}
	}
	return values
}

func TestABI(t *testing.T) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		skip(t, "no C compiler")
	}
	values := constants(t)
	if len(values) < 100 {
		t.Fatal("only", len(values), "constants in abi.go")
	}
	var source strings.Builder
	for _, header := range []string{
		"stdio.h", "stddef.h", "sys/syscall.h", "linux/io_uring.h", "linux/stat.h",
		"linux/openat2.h", "linux/time_types.h",
	} {
		fmt.Fprintf(&source, "#include <%s>\n", header)
	}
	source.WriteString("int main(void) {\n")
	check := func(what, c, want string) {
		fmt.Fprintf(&source, "  if ((unsigned long long)(%s) != %sULL)\n", c, want)
		fmt.Fprintf(&source,
			"    printf(\"%s: %%lld in the header, not %s\\n\", (long long)(%s));\n",
			what, want, c)
	}
	// What an older header does not know is left out: names of an enum by a look at its text,
	// below.
	var wanted []string
	for name, value := range values {
		c, known := headerNames[name]
		if !known {
			t.Errorf("%s: the test does not know its name in the header", name)
		}
		if c != "" {
			wanted = append(wanted, c)
			fmt.Fprintf(&source, "#ifdef HAVE_%s\n", c)
			check(name, c, value)
			source.WriteString("#endif\n")
		}
	}
	for name := range headerNames {
		if _, ok := values[name]; !ok {
			t.Errorf("%s is no constant of abi.go", name)
		}
	}
	fields := 0
	for _, l := range layouts() {
		tag := "HAVE_" + strings.TrimPrefix(l.c, "struct ")
		wanted = append(wanted, strings.TrimPrefix(l.c, "struct "))
		fmt.Fprintf(&source, "#ifdef %s\n", tag)
		check("size of "+l.c, "sizeof("+l.c+")", fmt.Sprint(l.size))
		for field, offset := range l.fields {
			fields++
			check("offset of "+l.c+"."+field, "offsetof("+l.c+", "+field+")", fmt.Sprint(offset))
		}
		source.WriteString("#endif\n")
	}
	source.WriteString("  return 0;\n}\n")

	dir := t.TempDir()
	file, program := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	// The headers' text with all that they include, macros among it.
	text, err := exec.Command(compiler, "-E", "-dD", file).CombinedOutput()
	if err != nil {
		skip(t, "no header <linux/io_uring.h>:", string(firstLine(text)))
	}
	words := map[string]bool{}
	for _, word := range bytes.FieldsFunc(text, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}) {
		words[string(word)] = true
	}
	arguments := []string{"-o", program, file}
	var missing []string
	for _, name := range wanted {
		if words[name] {
			arguments = append(arguments, "-DHAVE_"+name)
		} else {
			missing = append(missing, name)
		}
	}
	if out, err := exec.Command(compiler, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", errors.Join(err), out)
	}
	t.Logf("%d constants and %d fields compared; this header does not have: %s",
		len(wanted)-len(missing), fields, strings.Join(missing, " "))
	if len(missing) > len(wanted)/4 {
		t.Error("hardly anything was compared")
	}
}

func firstLine(text []byte) []byte {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return line
}
