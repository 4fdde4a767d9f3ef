//go:build linux

// Compares the numbers and layouts of abi.go and sysnum*.go with the kernel's headers, using a C
// compiler.

package ring

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unsafe"
)

// headerPrefixes maps the first words of constants to those of their names in the header. The rest
// is the same, without underscores.
var headerPrefixes = [][2]string{
	{"sys", "__NR_io_uring_"}, {"off", "IORING_OFF_"}, {"setup", "IORING_SETUP_"},
	{"feat", "IORING_FEAT_"}, {"enter", "IORING_ENTER_"}, {"sqe", "IOSQE_"},
	{"sq", "IORING_SQ_"}, {"Flag", "IORING_CQE_F_"}, {"Op", "IORING_OP_"},
	{"register", "IORING_REGISTER_"}, {"unregister", "IORING_UNREGISTER_"},
	{"fsync", "IORING_FSYNC_"}, {"timeout", "IORING_TIMEOUT_"},
	{"cancel", "IORING_ASYNC_CANCEL_"}, {"accept", "IORING_ACCEPT_"},
	{"recv", "IORING_RECV_"}, {"poll", "IORING_POLL_"},
}

// headerNames has the constants with another name in the header; "" marks our own.
var headerNames = map[string]string{
	"sqeDrain": "IOSQE_IO_DRAIN", "sqeLink": "IOSQE_IO_LINK", "sqeHardlink": "IOSQE_IO_HARDLINK",
	"FlagNotification": "IORING_CQE_F_NOTIF", "bufferShift": "IORING_CQE_BUFFER_SHIFT",
	"registerSparse": "IORING_RSRC_REGISTER_SPARSE", "linkUpdate": "IORING_LINK_TIMEOUT_UPDATE",
	"messageData": "IORING_MSG_DATA", "probeSupported": "IO_URING_OP_SUPPORTED",
	"indexAlloc": "IORING_FILE_INDEX_ALLOC",
	"probeOps":   "", "maxEntries": "", "maxBufferEntries": "",
}

// layouts has the structs of the header. Their fields are those of C, each with that of Go if the
// name is another one.
var layouts = map[string]struct {
	of     any
	fields string
}{
	"io_uring_sqe": {sqe{}, "opcode flags ioprio fd off addr2:off addr splice_off_in:addr len " +
		"rw_flags:opFlags cancel_flags:opFlags user_data:userData buf_index:bufIndex " +
		"buf_group:bufIndex personality file_index:fileIndex splice_fd_in:fileIndex addr3"},
	"io_uring_cqe": {cqe{}, "user_data:userData res flags"},
	"io_uring_params": {params{}, "sq_entries:sqEntries cq_entries:cqEntries flags " +
		"sq_thread_cpu:sqThreadCPU sq_thread_idle:sqThreadIdle features wq_fd:wqFD " +
		"sq_off.head:sqOff.head sq_off.tail:sqOff.tail sq_off.flags:sqOff.flags " +
		"sq_off.array:sqOff.array cq_off.head:cqOff.head cq_off.tail:cqOff.tail " +
		"cq_off.overflow:cqOff.overflow cq_off.cqes:cqOff.cqes"},
	"io_uring_getevents_arg": {geteventsArg{}, "sigmask sigmask_sz:sigmaskSz ts"},
	"statx": {Statx{}, "stx_mask:Mask stx_blksize:BlockSize stx_attributes:Attributes " +
		"stx_nlink:Links stx_uid:UID stx_gid:GID stx_mode:Mode stx_ino:Inode stx_size:Size " +
		"stx_blocks:Blocks stx_attributes_mask:AttributesMask stx_atime:Accessed stx_btime:Born " +
		"stx_ctime:Changed stx_mtime:Modified stx_mtime.tv_nsec:Modified.Nsec " +
		"stx_rdev_major:RdevMajor stx_dev_minor:DevMinor stx_mnt_id:MountID " +
		"stx_dio_mem_align:DirectMemAlign stx_dio_offset_align:DirectOffsetAlign"},
	"io_uring_files_update":     {filesUpdate{}, "offset fds"},
	"io_uring_rsrc_register":    {rsrcRegister{}, "nr flags data tags"},
	"io_uring_rsrc_update2":     {rsrcUpdate{}, "offset data tags nr"},
	"io_uring_file_index_range": {indexRange{}, "off len"},
	"io_uring_sync_cancel_reg":  {syncCancel{}, "addr fd flags timeout:span"},
	"io_uring_probe_op":         {probeOp{}, "op flags"},
	"io_uring_probe":            {probeTable{}, "last_op:last ops_len:ops ops:entries"},
	"io_uring_buf":              {bufferEntry{}, "addr len bid:id resv:res"},
	"io_uring_buf_ring":         {bufferEntry{}, "tail:res"},
	"io_uring_buf_reg": {bufferRegistration{},
		"ring_addr:addr ring_entries:entries bgid:group"},
	"open_how":          {openHow{}, "flags mode resolve"},
	"__kernel_timespec": {timespec{}, "tv_sec:sec tv_nsec:nsec"},
}

// offset returns the offset of a field, whose name may lead into others.
func offset(t *testing.T, of reflect.Type, path string) (at uintptr) {
	t.Helper()
	for name := range strings.SplitSeq(path, ".") {
		field, ok := of.FieldByName(name)
		require(t, ok, "%v has no %s", of, name)
		at, of = at+field.Offset, field.Type
	}
	return at
}

// constants returns the constants of files, parsed from their source so that none is forgotten.
func constants(t *testing.T, names ...string) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		file := get(parser.ParseFile(files, name, nil, 0))(t)
		parsed = append(parsed, file)
	}
	info := types.Info{Defs: map[*ast.Ident]types.Object{}}
	// Other files are missing: so are types of theirs.
	checker := types.Config{Importer: importer.Default(), Error: func(error) {}}
	_, _ = checker.Check("ring", files, parsed, &info)
	values := map[string]string{}
	for name, object := range info.Defs {
		if c, ok := object.(*types.Const); ok && c.Val().Kind() == constant.Int {
			values[name.Name] = c.Val().ExactString()
		}
	}
	return values
}

// filesFor returns those of the package's files with a name like this that an architecture has.
func filesFor(t *testing.T, pattern, architecture string) (names []string) {
	t.Helper()
	all := get(filepath.Glob(pattern))(t)
	machine := build.Default
	machine.GOARCH = architecture
	for _, name := range all {
		matches := get(machine.MatchFile(".", name))(t)
		if matches {
			names = append(names, name)
		}
	}
	return names
}

// What differs between the architectures of Go. Most of them are not tested by running on them.
func TestABIOfEachArchitecture(t *testing.T) {
	for _, c := range []struct{ architectures, first, poll string }{ // first: io_uring_setup(2).
		{"386 amd64 arm arm64 loong64 ppc64le riscv64", "425", "pollmask_little.go"},
		{"ppc64 s390x", "425", "pollmask_big.go"},
		{"mipsle", "4425", "pollmask_little.go"}, {"mips", "4425", "pollmask_big.go"},
		{"mips64le", "5425", "pollmask_little.go"}, {"mips64", "5425", "pollmask_big.go"},
	} {
		for architecture := range strings.FieldsSeq(c.architectures) {
			numbers := constants(t, filesFor(t, "sysnum*.go", architecture)...)
			expect(t, numbers["sysSetup"] == c.first && len(numbers) == 3, "%s: %v", architecture,
				numbers)
			poll := filesFor(t, "pollmask*.go", architecture)
			expect(t, slices.Equal(poll, []string{c.poll}), "%s: %v", architecture, poll)
		}
	}
}

// plain returns a name without underscores and without case.
func plain(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "_", "")) }

func TestABI(t *testing.T) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		skip(t, "no C compiler")
	}
	values := constants(t, append(filesFor(t, "sysnum*.go", runtime.GOARCH), "abi.go")...)
	require(t, len(values) >= 100, "only %v constants in abi.go", len(values))
	var source strings.Builder
	for _, header := range []string{
		"stdio.h", "stddef.h", "sys/syscall.h", "linux/io_uring.h", "linux/stat.h",
		"linux/openat2.h", "linux/time_types.h",
	} {
		fmt.Fprintf(&source, "#include <%s>\n", header)
	}
	dir := t.TempDir()
	file, program := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	must(t, os.WriteFile(file, []byte(source.String()), 0o600))
	// The headers' text with all that they include, macros among it.
	text, err := exec.Command(compiler, "-E", "-dD", file).CombinedOutput()
	if err != nil {
		first, _, _ := strings.Cut(string(text), "\n")
		skip(t, "no header <linux/io_uring.h>:", first)
	}
	words := map[string]string{}
	for word := range strings.FieldsFuncSeq(string(text), func(c rune) bool {
		return c != '_' && !unicode.IsDigit(c) && !unicode.IsLetter(c)
	}) {
		words[plain(word)] = word
	}

	source.WriteString("int main(void) {\n")
	compared, missing := 0, []string{}
	check := func(what, c, want string) {
		compared++
		fmt.Fprintf(&source, "  if ((unsigned long long)(%s) != %sULL)\n", c, want)
		fmt.Fprintf(&source,
			"    printf(\"%s: %%lld in the header, not %s\\n\", (long long)(%s));\n",
			what, want, c)
	}
	for name, value := range values {
		c, other := headerNames[name]
		for _, prefix := range headerPrefixes {
			if rest, ok := strings.CutPrefix(name, prefix[0]); ok && !other {
				c, other = prefix[1]+rest, true
			}
		}
		switch word := words[plain(c)]; {
		case !other:
			t.Errorf("%s: the test does not know its name in the header", name)
		case c == "":
		case word == "": // An older header does not have it.
			missing = append(missing, name)
		default:
			check(name, word, value)
		}
	}
	for name := range headerNames {
		expect(t, values[name] != "", "%s is no constant of abi.go", name)
	}
	for c, l := range layouts {
		if words[plain(c)] == "" {
			missing = append(missing, c)
			continue
		}
		of := reflect.TypeOf(l.of)
		size := of.Size()
		if c == "io_uring_probe" {
			size -= unsafe.Sizeof(probeTable{}.entries)
		}
		check("size of "+c, "sizeof(struct "+c+")", fmt.Sprint(size))
		for field := range strings.FieldsSeq(l.fields) {
			field, ours, other := strings.Cut(field, ":")
			if !other {
				ours = field
			}
			check("offset of "+c+"."+field, "offsetof(struct "+c+", "+field+")",
				fmt.Sprint(offset(t, of, ours)))
		}
	}
	source.WriteString("  return 0;\n}\n")
	must(t, os.WriteFile(file, []byte(source.String()), 0o600))
	out, err := exec.Command(compiler, "-o", program, file).CombinedOutput()
	require(t, err == nil, "%v\n%s", err, out)
	if out, err := exec.Command(program).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%d compared; this header does not have: %s", compared, strings.Join(missing, " "))
	expect(t, len(missing) <= compared/4, "hardly anything was compared")
}
