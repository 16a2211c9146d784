/*
 * lab-run [--stdin] [--user USER] [--memlock BYTES] -- COMMAND [ARG]...
 *
 * Runs one command of `ci/rxe-lab exec` inside a VM and returns its exit status, 128+n for signal n.
 *
 * It does what the ssh server does not. It ends the command when the client goes, even by SIGKILL: a test that kills its
 * local process must not leave a server behind that holds the port. It drops user, limits and capabilities in one place.
 * And it keeps copies of the programs in /share/bin in memory: started from the share, a program of 5 MB takes half a
 * second longer, each time, because its pages come one by one through the emulated transport.
 *
 * Standard input is the lifeline: the client keeps it open and writes nothing, and when the client's channel goes the
 * server closes it. (It keeps the output pipes open until the command ends, so they tell nothing.) With --stdin it is
 * the command's input instead, and its end means nothing more; only a lost connection, which closes the output pipes
 * too, ends the command then.
 *
 * The command gets its own process group, and all of that group is signalled. What leaves the group lives on.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time to report and clean up after SIGTERM; taste, and longer than the tools' own shutdown. */
#define GRACE_MS 3000

static void fail(int status, const char *what, const char *object)
{
    fprintf(stderr, "lab-run: %s %s: %s\n", what, object, strerror(errno));
    exit(status);
}

static void usage(void)
{
    fputs("usage: lab-run [--stdin] [--user USER] [--memlock BYTES] -- COMMAND [ARG]...\n", stderr);
    exit(2);
}

/* Not getpwnam: it would load NSS modules, and this program is linked statically so that it starts fast. */
static const struct passwd *find_user(const char *name)
{
    FILE *passwd = fopen("/etc/passwd", "re");
    if (!passwd)
        fail(125, "cannot open", "/etc/passwd");
    const struct passwd *user;
    while ((user = fgetpwent(passwd)) && strcmp(user->pw_name, name))
        ;
    fclose(passwd);
    return user;
}

static rlim_t parse_bytes(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long bytes = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-') {
        errno = errno ? errno : EINVAL;
        fail(2, "not a number of bytes:", text);
    }
    return bytes;
}

static int same_file(const struct stat *shared, const struct stat *copy)
{
    return shared->st_size == copy->st_size && shared->st_mtim.tv_sec == copy->st_mtim.tv_sec &&
           shared->st_mtim.tv_nsec == copy->st_mtim.tv_nsec;
}

static int copy_program(int from, int to, const struct stat *shared)
{
    for (off_t left = shared->st_size; left > 0;) {
        ssize_t sent = sendfile(to, from, NULL, (size_t)left);
        if (sent <= 0)
            return -1;
        left -= sent;
    }
    const struct timespec times[] = { shared->st_atim, shared->st_mtim };
    return futimens(to, times);
}

/* Replaces by rename, so that a running program keeps its file. Without a copy, PATH finds the shared one. */
static void refresh_program(int shared_dir, int copies_dir, const char *name)
{
    struct stat shared, copy;
    if (fstatat(shared_dir, name, &shared, 0) || !S_ISREG(shared.st_mode))
        return;
    if (!fstatat(copies_dir, name, &copy, 0) && same_file(&shared, &copy))
        return;

    char temporary[64];
    snprintf(temporary, sizeof temporary, ".copy.%d", (int)getpid());
    int from = openat(shared_dir, name, O_RDONLY | O_CLOEXEC);
    int to = openat(copies_dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    int copied = from >= 0 && to >= 0 && !fchmod(to, shared.st_mode & 0755) && !copy_program(from, to, &shared);
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
    if (!copied || renameat(copies_dir, temporary, copies_dir, name)) {
        unlinkat(copies_dir, temporary, 0);
        unlinkat(copies_dir, name, 0);
    }
}

static void refresh_programs(void)
{
    DIR *shared = opendir("/share/bin");
    DIR *copies = opendir("/run/lab/bin");
    struct dirent *entry;
    if (shared && copies) {
        while ((entry = readdir(shared)))
            if (entry->d_name[0] != '.')
                refresh_program(dirfd(shared), dirfd(copies), entry->d_name);
        while ((entry = readdir(copies)))
            if (entry->d_name[0] != '.' && faccessat(dirfd(shared), entry->d_name, F_OK, 0))
                unlinkat(dirfd(copies), entry->d_name, 0);
    }
    if (shared)
        closedir(shared);
    if (copies)
        closedir(copies);
}

static void limit_memlock(rlim_t bytes)
{
    struct rlimit limit = { bytes, bytes };
    if (setrlimit(RLIMIT_MEMLOCK, &limit))
        fail(125, "cannot set", "RLIMIT_MEMLOCK");
}

static void become(const struct passwd *user)
{
    /* The bounding set too: a set-uid program must not bring CAP_IPC_LOCK back. */
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
        if (prctl(PR_CAPBSET_DROP, cap))
            fail(125, "cannot drop the capabilities for", user->pw_name);
    if (setgroups(0, NULL) || setresgid(user->pw_gid, user->pw_gid, user->pw_gid) ||
        setresuid(user->pw_uid, user->pw_uid, user->pw_uid))
        fail(125, "cannot become", user->pw_name);
    setenv("USER", user->pw_name, 1);
    setenv("LOGNAME", user->pw_name, 1);
    setenv("HOME", "/tmp", 1);
    if (chdir("/tmp"))
        fail(125, "cannot enter", "/tmp");
}

/* Returns the command's exit status when it has ended. `signals` carries SIGCHLD and what asks us to end. */
static int wait_for(pid_t child, int signals, int lifeline)
{
    int ending = 0;
    /* No events asked for: POLLHUP and POLLERR, "no other end", are always reported. poll skips a negative fd. */
    struct pollfd fds[] = {
        { .fd = signals, .events = POLLIN }, { .fd = lifeline }, { .fd = STDOUT_FILENO }, { .fd = STDERR_FILENO },
    };

    for (;;) {
        int ready = poll(fds, ending ? 1 : 4, ending ? GRACE_MS : -1);
        if (ready < 0 && errno != EINTR)
            fail(125, "cannot wait for the command:", "poll");
        if (ready == 0) {
            kill(-child, SIGKILL);
            continue;
        }

        int asked = 0;
        struct signalfd_siginfo info;
        if (fds[0].revents & POLLIN && read(signals, &info, sizeof info) == sizeof info) {
            int status;
            if (info.ssi_signo != SIGCHLD)
                asked = (int)info.ssi_signo;
            else if (waitpid(child, &status, WNOHANG) == child) {
                /* Its helpers must not outlive a command that was told to end. */
                if (ending)
                    kill(-child, SIGKILL);
                return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            }
        }
        if (!ending && (fds[1].revents | fds[2].revents | fds[3].revents) & (POLLHUP | POLLERR))
            asked = SIGTERM;
        if (asked) {
            kill(-child, asked);
            ending = 1;
        }
    }
}

int main(int argc, char **argv)
{
    const struct passwd *user = NULL;
    const char *memlock = NULL;
    int lifeline = STDIN_FILENO;
    int at = 1;

    if (at < argc && !strcmp(argv[at], "--stdin")) {
        lifeline = -1;
        at++;
    }
    for (; at < argc && strcmp(argv[at], "--"); at += 2) {
        if (at + 1 >= argc)
            usage();
        if (!strcmp(argv[at], "--memlock"))
            memlock = argv[at + 1];
        else if (strcmp(argv[at], "--user"))
            usage();
        else if (!(user = find_user(argv[at + 1]))) {
            errno = ENOENT;
            fail(2, "no such user:", argv[at + 1]);
        }
    }
    if (at + 1 >= argc)
        usage();
    char **command = argv + at + 1;
    rlim_t bytes = memlock ? parse_bytes(memlock) : 0;

    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGHUP);
    sigset_t before;
    sigprocmask(SIG_BLOCK, &watched, &before);
    int signals = signalfd(-1, &watched, SFD_CLOEXEC);
    if (signals < 0)
        fail(125, "cannot watch", "signals");

    refresh_programs();
    setenv("PATH", "/run/lab/bin:/share/bin:/usr/bin", 1);
    pid_t child = fork();
    if (child < 0)
        fail(125, "cannot start", command[0]);
    if (child == 0) {
        setpgid(0, 0);
        sigprocmask(SIG_SETMASK, &before, NULL);
        if (lifeline >= 0) {
            close(lifeline);
            if (open("/dev/null", O_RDONLY) != STDIN_FILENO)
                fail(125, "cannot open", "/dev/null");
        }
        /* Limits first: raising a hard limit needs the capability that become() gives up. */
        if (memlock)
            limit_memlock(bytes);
        if (user)
            become(user);
        execvp(command[0], command);
        fail(errno == ENOENT ? 127 : 126, "cannot run", command[0]);
    }
    setpgid(child, child);
    return wait_for(child, signals, lifeline);
}
