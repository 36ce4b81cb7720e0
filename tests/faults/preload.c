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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { COUNT, KILL, TORN, NO_SPACE, IO_ERROR, MODES };  /* as in libc.py */
enum { CREATES = 1, WRITES = 2, DELETES = 4, SYNCS = 8 };
enum { PASS, FAIL, HALF };

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
    if (armed.mode == KILL) die();
    errno = armed.mode == NO_SPACE ? ENOSPC : EIO;
    return armed.mode == TORN ? HALF : FAIL;
}

/* What leads to an open file or directory: its path, into `path`. */
static int find(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int saved = errno;
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    errno = saved;
    if (length <= 0) return 0;
    path[length] = 0;
    return 1;
}

static int judge_fd(int kind, const char *call, int fd) {
    char path[PATH_MAX];
    return atomic_load(&armed.on) && find(fd, path) ? judge(kind, call, path) : PASS;
}

static int judge_at(int kind, const char *call, int fd, const char *path) {
    if (!atomic_load(&armed.on)) return PASS;
    if (path[0] == '/') return judge(kind, call, path);
    char base[PATH_MAX] = "", whole[2 * PATH_MAX];
    if (!(fd == AT_FDCWD ? !!getcwd(base, sizeof base) : find(fd, base))) return PASS;
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    return judge(kind, call, whole);
}

static int judge_stream(int kind, const char *call, FILE *file) {
    return __fwritable(file) ? judge_fd(kind, call, fileno(file)) : PASS;
}

static int judge_two(const char *call, const char *source, const char *target) {
    int leaves = atomic_load(&armed.on) && target[0] == '/' && !inside(target);
    return judge_at(CREATES, call, AT_FDCWD, leaves ? source : target);
}

#define REAL(result, name, ...)                                                \
    static result (*real)(__VA_ARGS__);                                        \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

/* `int name(…)` of these parameters, judged by an expression of them. */
#define CALL(name, verdict, parameters, arguments, failed)                     \
    int name parameters {                                                      \
        static int(*real) parameters;                                          \
        if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name);          \
        return (verdict) == FAIL ? failed : real arguments;                    \
    }

/* `ssize_t name(fd, …, size…)`; half of it is another call. */
#define WRITE(name, parameters, arguments, half)                               \
    ssize_t name parameters {                                                  \
        static ssize_t(*real) parameters;                                      \
        if (!real) real = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);      \
        int verdict = judge_fd(WRITES, #name, fd);                             \
        if (verdict == HALF) { real half; die(); }                             \
        return verdict == FAIL ? -1 : real arguments;                          \
    }

#define CHANGES(flags) ((flags) & (O_CREAT | O_TRUNC))
#define OPEN(name, parameters, arguments, at)                                  \
    int name parameters {                                                      \
        static int(*real) parameters;                                          \
        if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name);          \
        va_list rest;                                                          \
        va_start(rest, flags);                                                 \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(rest, int) : 0; \
        va_end(rest);                                                          \
        int verdict = CHANGES(flags) ? judge_at(CREATES, #name, at, path) : PASS; \
        return verdict == FAIL ? -1 : real arguments;                          \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD)
OPEN(openat, (int fd, const char *path, int flags, ...), (fd, path, flags, mode), fd)
OPEN(openat64, (int fd, const char *path, int flags, ...), (fd, path, flags, mode), fd)

/* Descriptors. */

WRITE(write, (int fd, const void *data, size_t size), (fd, data, size), (fd, data, size / 2))
/* Never waits for the disk: what a kill leaves does not depend on it. */
int fsync(int fd) { return judge_fd(SYNCS, "fsync", fd) == FAIL ? -1 : 0; }
int fdatasync(int fd) { return judge_fd(SYNCS, "fdatasync", fd) == FAIL ? -1 : 0; }

CALL(ftruncate, judge_fd(CREATES, "ftruncate", fd), (int fd, off_t size), (fd, size), -1)
CALL(ftruncate64, judge_fd(CREATES, "ftruncate", fd), (int fd, off64_t size), (fd, size), -1)

/* stdio: what fails is not written later either. */

#define FOPEN(name)                                                            \
    FILE *name(const char *path, const char *mode) {                           \
        REAL(FILE *, name, const char *, const char *);                        \
        int verdict = strpbrk(mode, "wa+") ? judge_at(CREATES, "fopen", AT_FDCWD, path) : PASS; \
        return verdict == FAIL ? NULL : real(path, mode);                      \
    }
FOPEN(fopen)
FOPEN(fopen64)

static void write_pending_and_die(FILE *file, size_t parts) {
    size_t pending = (size_t)(file->_IO_write_ptr - file->_IO_write_base);
    if (pending) syscall(SYS_write, fileno(file), file->_IO_write_base, pending / parts);
    die();
}

static void forget_pending(FILE *file) {
    int why = errno;
    __fpurge(file);
    errno = why;
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
    REAL(size_t, fwrite, const void *, size_t, size_t, FILE *);
    int verdict = judge_stream(WRITES, "fwrite", file);
    if (verdict == FAIL) forget_pending(file);
    if (verdict == HALF) {
        real(data, 1, size * count / 2, file);
        write_pending_and_die(file, 1);
    }
    return verdict == FAIL ? 0 : real(data, size, count, file);
}

int fflush(FILE *file) {
    REAL(int, fflush, FILE *);
    if (!file || !atomic_load(&armed.on) || !__fpending(file)) return real(file);
    int verdict = judge_stream(WRITES, "fflush", file);
    if (verdict == FAIL) forget_pending(file);
    if (verdict == HALF) write_pending_and_die(file, 2);
    return verdict == FAIL ? EOF : real(file);
}

int fclose(FILE *file) {
    REAL(int, fclose, FILE *);
    int verdict = __fwritable(file) && __fpending(file) ? judge_stream(WRITES, "fclose", file) : PASS;
    if (verdict == FAIL) {
        forget_pending(file);
        int why = errno;
        real(file);
        errno = why;
        return EOF;
    }
    if (verdict == HALF) write_pending_and_die(file, 2);
    return verdict == FAIL ? EOF : real(file);
}

/* Names. */

CALL(rename, judge_two("rename", source, target), (const char *source, const char *target),
     (source, target), -1)
CALL(link, judge_at(CREATES, "link", AT_FDCWD, target), (const char *source, const char *target),
     (source, target), -1)
CALL(mkdir, judge_at(CREATES, "mkdir", AT_FDCWD, path), (const char *path, mode_t mode),
     (path, mode), -1)
CALL(unlink, judge_at(DELETES, "unlink", AT_FDCWD, path), (const char *path), (path), -1)
CALL(rmdir, judge_at(DELETES, "rmdir", AT_FDCWD, path), (const char *path), (path), -1)
CALL(unlinkat, judge_at(DELETES, "unlinkat", fd, path), (int fd, const char *path, int flags),
     (fd, path, flags), -1)
