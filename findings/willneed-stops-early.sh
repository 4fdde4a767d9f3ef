#!/usr/bin/env bash
# Expected: posix_fadvise(POSIX_FADV_WILLNEED), readahead(2) and madvise(MADV_WILLNEED) of a range
# read the whole range into the page cache, if memory is free. Programs use them to warm files.
#
# Found (Linux 6.18.44, ext4, XFS and btrfs; vmtouch 1.3.1 counts the pages): each call reads at
# most the device's read-ahead size or its largest request, whichever is larger, from the start of
# the range (2.5 to 8 MiB of 128 MiB here), and returns 0. A loop of small calls, or
# MADV_POPULATE_READ, reads everything.
#
# Why: force_page_cache_ra() in mm/readahead.c clamps the length to max(ra->ra_pages, io_pages).
# The man page only says that less may be read "depending on virtual memory load".
#
# Set TMPDIR to a directory on ext4, XFS or btrfs. Needs Debian's package tools and Python 3.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
cd "$dir"
apt-get -qq -o APT::Sandbox::User=root download vmtouch=1.3.1-2
dpkg -x vmtouch_*.deb root
cat >warm.py <<'WARM'
import ctypes, mmap, os, sys, time
SIZE, POPULATE_READ = 128 << 20, 22
how = sys.argv[1]
file = os.open("file", os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
if how == "fadvise":
    os.posix_fadvise(file, 0, SIZE, os.POSIX_FADV_WILLNEED)
elif how == "readahead":
    libc = ctypes.CDLL(None)
    assert libc.readahead(file, ctypes.c_int64(0), ctypes.c_size_t(SIZE)) == 0
elif how == "loop":
    for at in range(0, SIZE, 1 << 20):
        os.posix_fadvise(file, at, 1 << 20, os.POSIX_FADV_WILLNEED)
else:
    advice = POPULATE_READ if how == "populate" else mmap.MADV_WILLNEED
    mmap.mmap(file, SIZE, prot=mmap.PROT_READ).madvise(advice)
time.sleep(2)
WARM
head -c $((128 << 20)) /dev/urandom >file
sync file
echo "Linux $(uname -r), $(findmnt -no FSTYPE -T .): MiB cached after advice for all 128:"
failed=0
for how in fadvise readahead madvise loop populate; do
    python3 warm.py "$how"
    pages=$(root/usr/bin/vmtouch file | sed -n 's/.*Resident Pages: \([0-9]*\).*/\1/p')
    echo "  $how: $((pages / 256))"
    case $how in
    loop | populate) [ "$pages" -gt 32000 ] || failed=1 ;;
    *) [ "$pages" -lt 16384 ] || failed=1 ;;
    esac
done
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
