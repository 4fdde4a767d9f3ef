#!/usr/bin/env bash
# Expected: a short write severs a chain of io_uring (IOSQE_IO_LINK): what is linked behind it ends
# with ECANCELED, whatever cut the write. So io_uring_enter(2) has it: a short read or write in a
# chain is an error of the chain.
#
# Found (Linux 6.18.44; liburing 2.3): a write that the limit of the file's size (RLIMIT_FSIZE)
# cuts severs the chain on ext4. On XFS the write returns 8192 of 12288 bytes, and the request
# behind it runs and succeeds. A program that links a sync, or a record that refers to the first
# one, gets the second without the whole of the first.
#
# Why: XFS begins a buffered write in the submitter, ext4 leaves it to a worker. The file
# system cuts the request to the limit; io_uring sees that it is short and gives the rest to a
# worker, but after the cut there is no rest: nothing is written, and that is a success. (Sources:
# io_write() in io_uring/rw.c, generic_write_checks_count() in fs/read_write.c.) If the time stamps
# are due, XFS leaves all of it to the worker too, and the chain is severed.
#
# Needs root, to mount; e2fsprogs, xfsprogs, a C compiler and Debian's package tools.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "needs root, to mount" >&2; exit 2; }
dir=$(mktemp -d)
cleanup() {
    umount -l "$dir/mount" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
mkdir mount packages
chmod 755 . packages
(cd packages && apt-get -qq -o APT::Sandbox::User=root download liburing-dev=2.3-3)
dpkg -x packages/*.deb root
library=$(find root/usr/lib -name liburing.a)

cat >chain.c <<'CHAIN'
#include <fcntl.h>
#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
static char bytes[12288];
int main(int count, char **args) {
    struct rlimit limit = {8192, RLIM_INFINITY};
    struct io_uring ring;
    struct io_uring_cqe *done;
    int results[2];
    // Otherwise the limit sends a signal that ends the process.
    signal(SIGXFSZ, SIG_IGN);
    int file = open(args[count - 1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || setrlimit(RLIMIT_FSIZE, &limit) || io_uring_queue_init(4, &ring, 0)) return 2;
    // The time stamps are due in the first write only.
    if (pwrite(file, bytes, 4096, 0) != 4096) return 2;
    struct io_uring_sqe *write = io_uring_get_sqe(&ring);
    io_uring_prep_write(write, file, bytes, sizeof bytes, 0);
    write->flags |= IOSQE_IO_LINK;
    struct io_uring_sqe *next = io_uring_get_sqe(&ring);
    io_uring_prep_nop(next);
    write->user_data = 0, next->user_data = 1;
    io_uring_submit_and_wait(&ring, 2);
    for (int number = 0; number < 2; number++) {
        if (io_uring_wait_cqe(&ring, &done)) return 2;
        results[done->user_data] = done->res;
        io_uring_cqe_seen(&ring, done);
    }
    printf("%d %d\n", results[0], results[1]);
    return 0;
}
CHAIN
cc -O1 -o chain chain.c -Iroot/usr/include "$library"
echo "Linux $(uname -r): a write of 12288 bytes with a limit of 8192, and what is linked behind it"
for file_system in ext4 xfs; do
    rm -f image
    truncate -s 512M image
    "mkfs.$file_system" -q image 2>/dev/null >&2
    mount -o loop image mount
    seen=$(for _ in $(seq 20); do ./chain mount/file; done | sort | uniq -c | sort -rn)
    umount mount
    echo "$file_system (times, result of the write, result of the request behind it):"
    echo "$seen"
    case $file_system in
        ext4) [[ $seen =~ ^\ *20\ 8192\ -125$ ]] ;; # ECANCELED
        xfs) [[ $seen =~ \ 8192\ 0 ]] ;;
    esac || { echo "not as found" >&2; exit 1; }
done
