/* Makes the n-th call that changes the file system fail, for a process started with LD_PRELOAD.
 *
 * Below Python and below TensorFlow: what either asks of libc on paths in one directory is counted,
 * and one of those calls is where the process is killed, or is told that the disk is full. glibc's
 * stdio does not come back through `write`, and TensorFlow writes through stdio, so that the calls
 * of stdio are caught themselves. Linux with glibc only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, KILL_BEFORE, KILL_AFTER, TORN, NO_SPACE, IO_ERROR, MODES };  /* as in injection.py */
enum { CREATES = 1, WRITES = 2, DELETES = 4, SYNCS = 8 };
enum { PASS, FAIL, AFTER, HALF };

static struct {
    atomic_int on;
    char directory[PATH_MAX];
    long n;
    int mode, once, log;
} armed;
static atomic_long calls[MODES];  /* those that each mode could have struck */

void faults_arm(const char *directory, long n, int mode, int once, int log) {
    snprintf(armed.directory, sizeof armed.directory, "%s", directory);
    armed.n = n, armed.mode = mode, armed.once = once, armed.log = log;
    for (int each = 0; each < MODES; each++) atomic_store(&calls[each], 0);
    atomic_store(&armed.on, 1);
}

void faults_disarm(void) { atomic_store(&armed.on, 0); }

long faults_count(int mode) { return atomic_load(&calls[mode]); }

#define REAL(result, name, ...)                                                \
    static result (*real)(__VA_ARGS__);                                        \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static void die(void) { syscall(SYS_kill, getpid(), SIGKILL); for (;;) pause(); }

static int inside(const char *path) {
    size_t length = strlen(armed.directory);
    return !strncmp(path, armed.directory, length) && (!path[length] || path[length] == '/');
}

static int is_applicable(int mode, int kind) {
    switch (mode) {
    case TORN: return kind & WRITES;
    case NO_SPACE: return kind & (CREATES | WRITES | SYNCS);  /* deleting needs no space */
    default: return 1;
    }
}

/* What to do at this call; `errno` is set for FAIL. */
static int judge(int kind, const char *call, const char *path) {
    if (!atomic_load(&armed.on) || !inside(path)) return PASS;
    long now = 0;
    for (int each = 0; each < MODES; each++) {
        if (!is_applicable(each, kind)) continue;
        long count = atomic_fetch_add(&calls[each], 1) + 1;
        if (each == armed.mode) now = count;
    }
    if (!now || armed.mode == COUNT || now < armed.n || (armed.once && now > armed.n)) return PASS;
    if (now == armed.n && armed.log >= 0) {
        char line[PATH_MAX + 64];
        int length = snprintf(line, sizeof line, "fault %s %s\n", call, path);
        syscall(SYS_write, armed.log, line, (size_t)length);
    }
    switch (armed.mode) {
    case KILL_BEFORE: die(); return FAIL;
    case KILL_AFTER: return AFTER;
    case TORN: return HALF;
    case NO_SPACE: errno = ENOSPC; return FAIL;
    default: errno = EIO; return FAIL;
    }
}

static int judge_fd(int kind, const char *call, int fd) {
    if (!atomic_load(&armed.on)) return PASS;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int saved = errno;
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length <= 0) return PASS;
    path[length] = 0;
    return judge(kind, call, path);
}

static int judge_at(int kind, const char *call, int fd, const char *path) {
    if (!atomic_load(&armed.on)) return PASS;
    if (path[0] == '/') return judge(kind, call, path);
    char base[PATH_MAX] = "", whole[2 * PATH_MAX];
    if (fd == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return PASS;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, base, sizeof base - 1);
        if (length <= 0) return PASS;
        base[length] = 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    return judge(kind, call, whole);
}

static int judge_two(const char *call, int fd1, const char *path1, int fd2, const char *path2) {
    const char *path = path2;
    int fd = fd2;
    if (atomic_load(&armed.on) && path1[0] == '/' && path2[0] == '/' && !inside(path2))
        path = path1, fd = fd1;  /* moved out of the directory */
    return judge_at(CREATES, call, fd, path);
}

/* A call that happens as a whole or not at all. */
#define WHOLE(verdict, type, failed, action)                                   \
    do {                                                                       \
        int verdict_ = (verdict);                                              \
        if (verdict_ == FAIL) return failed;                                   \
        type result_ = (action);                                               \
        if (verdict_ == AFTER) die();                                          \
        return result_;                                                        \
    } while (0)

#define OPEN_MODE(flags)                                                       \
    mode_t mode = 0;                                                           \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                     \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        mode = (mode_t)va_arg(rest, int);                                      \
        va_end(rest);                                                          \
    }
#define CHANGES(flags) ((flags) & (O_CREAT | O_TRUNC))

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...) {                               \
        REAL(int, name, const char *, int, ...);                               \
        OPEN_MODE(flags)                                                       \
        WHOLE(CHANGES(flags) ? judge_at(CREATES, "open", AT_FDCWD, path) : PASS, int, -1, \
              real(path, flags, mode));                                        \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                           \
    int name(int fd, const char *path, int flags, ...) {                       \
        REAL(int, name, int, const char *, int, ...);                          \
        OPEN_MODE(flags)                                                       \
        WHOLE(CHANGES(flags) ? judge_at(CREATES, "openat", fd, path) : PASS, int, -1, \
              real(fd, path, flags, mode));                                    \
    }
OPENAT(openat)
OPENAT(openat64)

#define CREAT(name)                                                            \
    int name(const char *path, mode_t mode) {                                  \
        REAL(int, name, const char *, mode_t);                                 \
        WHOLE(judge_at(CREATES, "creat", AT_FDCWD, path), int, -1, real(path, mode)); \
    }
CREAT(creat)
CREAT(creat64)

#define FOPEN(name)                                                            \
    FILE *name(const char *path, const char *mode) {                           \
        REAL(FILE *, name, const char *, const char *);                        \
        int verdict = strpbrk(mode, "wa+") ? judge_at(CREATES, "fopen", AT_FDCWD, path) : PASS; \
        WHOLE(verdict, FILE *, NULL, real(path, mode));                        \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* Descriptors. */

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    int verdict = judge_fd(WRITES, "write", fd);
    if (verdict == HALF) { real(fd, data, size / 2); die(); }
    WHOLE(verdict, ssize_t, -1, real(fd, data, size));
}

#define PWRITE(name, offset_type)                                              \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset) {  \
        REAL(ssize_t, name, int, const void *, size_t, offset_type);           \
        int verdict = judge_fd(WRITES, "pwrite", fd);                          \
        if (verdict == HALF) { real(fd, data, size / 2, offset); die(); }      \
        WHOLE(verdict, ssize_t, -1, real(fd, data, size, offset));             \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    int verdict = judge_fd(WRITES, "writev", fd);
    if (verdict == HALF) { real(fd, parts, count / 2); die(); }
    WHOLE(verdict, ssize_t, -1, real(fd, parts, count));
}

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
    int verdict = judge_fd(WRITES, "copy_file_range", out);
    if (verdict == HALF) { real(in, from, out, to, size / 2, flags); die(); }
    WHOLE(verdict, ssize_t, -1, real(in, from, out, to, size, flags));
}

#define SENDFILE(name, offset_type)                                            \
    ssize_t name(int out, int in, offset_type *offset, size_t size) {          \
        REAL(ssize_t, name, int, int, offset_type *, size_t);                  \
        int verdict = judge_fd(WRITES, "sendfile", out);                       \
        if (verdict == HALF) { real(out, in, offset, size / 2); die(); }       \
        WHOLE(verdict, ssize_t, -1, real(out, in, offset, size));              \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

/* Never waits for the disk: what a kill leaves does not depend on it. */
#define SYNC(name)                                                             \
    int name(int fd) { WHOLE(judge_fd(SYNCS, #name, fd), int, -1, 0); }
SYNC(fsync)
SYNC(fdatasync)

#define FTRUNCATE(name, offset_type)                                           \
    int name(int fd, offset_type size) {                                       \
        REAL(int, name, int, offset_type);                                     \
        WHOLE(judge_fd(CREATES, "ftruncate", fd), int, -1, real(fd, size));    \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

#define FALLOCATE(name, offset_type)                                           \
    int name(int fd, int mode, offset_type offset, offset_type size) {         \
        REAL(int, name, int, int, offset_type, offset_type);                   \
        WHOLE(judge_fd(CREATES, "fallocate", fd), int, -1, real(fd, mode, offset, size)); \
    }
FALLOCATE(fallocate, off_t)
FALLOCATE(fallocate64, off64_t)

#define POSIX_FALLOCATE(name, offset_type)                                     \
    int name(int fd, offset_type offset, offset_type size) {                   \
        REAL(int, name, int, offset_type, offset_type);                        \
        WHOLE(judge_fd(CREATES, "posix_fallocate", fd), int, errno, real(fd, offset, size)); \
    }
POSIX_FALLOCATE(posix_fallocate, off_t)
POSIX_FALLOCATE(posix_fallocate64, off64_t)

/* stdio: what fails is not written later either. */

static int judge_stream(int kind, const char *call, FILE *file) {
    return __fwritable(file) ? judge_fd(kind, call, fileno(file)) : PASS;
}

static void write_pending_and_die(FILE *file, size_t parts) {
    size_t pending = (size_t)(file->_IO_write_ptr - file->_IO_write_base);
    if (pending) syscall(SYS_write, fileno(file), file->_IO_write_base, pending / parts);
    die();
}

#define FWRITE(name)                                                           \
    size_t name(const void *data, size_t size, size_t count, FILE *file) {     \
        REAL(size_t, name, const void *, size_t, size_t, FILE *);              \
        int verdict = judge_stream(WRITES, "fwrite", file);                    \
        if (verdict == FAIL) { int why = errno; __fpurge(file); errno = why; return 0; } \
        if (verdict == HALF) {                                                 \
            real(data, 1, size * count / 2, file);                             \
            write_pending_and_die(file, 1);                                    \
        }                                                                      \
        WHOLE(verdict, size_t, 0, real(data, size, count, file));              \
    }
FWRITE(fwrite)
#undef fwrite_unlocked
FWRITE(fwrite_unlocked)

int fflush(FILE *file) {
    REAL(int, fflush, FILE *);
    if (!file || !atomic_load(&armed.on) || !__fpending(file)) return real(file);
    int verdict = judge_stream(WRITES, "fflush", file);
    if (verdict == FAIL) { int why = errno; __fpurge(file); errno = why; return EOF; }
    if (verdict == HALF) write_pending_and_die(file, 2);
    WHOLE(verdict, int, EOF, real(file));
}

int fclose(FILE *file) {
    REAL(int, fclose, FILE *);
    int verdict = __fwritable(file) && __fpending(file) ? judge_stream(WRITES, "fclose", file) : PASS;
    if (verdict == FAIL) {
        int why = errno;
        __fpurge(file);
        real(file);
        errno = why;
        return EOF;
    }
    if (verdict == HALF) write_pending_and_die(file, 2);
    WHOLE(verdict, int, EOF, real(file));
}

/* Names. */

int rename(const char *source, const char *target) {
    REAL(int, rename, const char *, const char *);
    WHOLE(judge_two("rename", AT_FDCWD, source, AT_FDCWD, target), int, -1, real(source, target));
}

int renameat(int from, const char *source, int to, const char *target) {
    REAL(int, renameat, int, const char *, int, const char *);
    WHOLE(judge_two("renameat", from, source, to, target), int, -1, real(from, source, to, target));
}

int renameat2(int from, const char *source, int to, const char *target, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    WHOLE(judge_two("renameat2", from, source, to, target), int, -1,
          real(from, source, to, target, flags));
}

int link(const char *source, const char *target) {
    REAL(int, link, const char *, const char *);
    WHOLE(judge_at(CREATES, "link", AT_FDCWD, target), int, -1, real(source, target));
}

int linkat(int from, const char *source, int to, const char *target, int flags) {
    REAL(int, linkat, int, const char *, int, const char *, int);
    WHOLE(judge_at(CREATES, "linkat", to, target), int, -1, real(from, source, to, target, flags));
}

int symlink(const char *target, const char *path) {
    REAL(int, symlink, const char *, const char *);
    WHOLE(judge_at(CREATES, "symlink", AT_FDCWD, path), int, -1, real(target, path));
}

int symlinkat(const char *target, int fd, const char *path) {
    REAL(int, symlinkat, const char *, int, const char *);
    WHOLE(judge_at(CREATES, "symlinkat", fd, path), int, -1, real(target, fd, path));
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    WHOLE(judge_at(CREATES, "mkdir", AT_FDCWD, path), int, -1, real(path, mode));
}

int mkdirat(int fd, const char *path, mode_t mode) {
    REAL(int, mkdirat, int, const char *, mode_t);
    WHOLE(judge_at(CREATES, "mkdirat", fd, path), int, -1, real(fd, path, mode));
}

#define ON_PATH(name, kind)                                                    \
    int name(const char *path) {                                               \
        REAL(int, name, const char *);                                         \
        WHOLE(judge_at(kind, #name, AT_FDCWD, path), int, -1, real(path));     \
    }
ON_PATH(unlink, DELETES)
ON_PATH(rmdir, DELETES)
ON_PATH(remove, DELETES)

int unlinkat(int fd, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    WHOLE(judge_at(DELETES, "unlinkat", fd, path), int, -1, real(fd, path, flags));
}

#define TRUNCATE(name, offset_type)                                            \
    int name(const char *path, offset_type size) {                             \
        REAL(int, name, const char *, offset_type);                            \
        WHOLE(judge_at(CREATES, "truncate", AT_FDCWD, path), int, -1, real(path, size)); \
    }
TRUNCATE(truncate, off_t)
TRUNCATE(truncate64, off64_t)
