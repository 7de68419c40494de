/* A strict reader of $JOBSTATUS in another language: strict_reader DIR --json [--now T] [--allocated A] [--jobstart J]
   [--batch-end T]. It has no flags: what has to be repaired is an error. The rules are those of the suite's cases. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define UNKNOWN -1L
enum { U, S, E1, EL, ML, Q, W, POSTPONE, PRIORITY, KEYS };
static const char *names[KEYS] = {"used_CPU", "last_job_start", "first_exp_job_end", "last_exp_job_end",
    "last_max_job_end", "add_uncom_time", "add_final_exp_waste", "can_postpone_last_job", "priority_factor"};
static long value[KEYS], now = UNKNOWN, allocated = UNKNOWN, jobstart = UNKNOWN, batch_end = UNKNOWN;
static int known[KEYS];

static void refuse(const char *reason, int key) {
    printf("{\"error\": \"%s:%s\"}\n", reason, key < KEYS ? names[key] : "directory");
    exit(3);
}

static void late(int signal) {
    (void)signal;
    refuse("locked", U);
}

/* The descriptor of a file that may be read; -1: there is none. */
static int open_key(int directory, int key, const struct stat *folder) {
    struct stat file;
    int descriptor = openat(directory, names[key], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0 && errno == ENOENT) return -1;
    if (descriptor < 0 || fstat(descriptor, &file)) refuse("unreadable", key);
    if (!S_ISREG(file.st_mode) || file.st_uid != folder->st_uid || file.st_nlink != 1) refuse("unsafe", key);
    if (file.st_dev != folder->st_dev || file.st_size > 64) refuse("unsafe", key);
    return descriptor;
}

static void parse(int key, char *text, ssize_t length) {
    const char *white = " \t\n\v\f\r";
    if (length < 0 || length > 64) refuse("too-long", key);
    if (memchr(text, 0, length)) refuse("not-a-number", key);
    text[length] = 0;
    char *start = text + strspn(text, white);
    for (char *end = start + strlen(start); end > start && strchr(white, end[-1]); *--end = 0) continue;
    known[key] = 1;
    if (key == POSTPONE) {
        value[key] = !strcmp(start, "True");
        if (!value[key] && strcmp(start, "False")) refuse("not-true-or-false", key);
        return;
    }
    char *digits = start + (*start == '+' || *start == '-');
    size_t count = strspn(digits, "0123456789");
    if (!count || count > 18 || digits[count]) refuse("not-a-number", key);
    value[key] = strtol(start, NULL, 10);
    if (value[key] < 0 && key != PRIORITY) refuse("negative", key);
}

static void check(void) {
    if (known[S] && value[S] > now + 5) refuse("start-in-future", S);
    if (allocated != UNKNOWN && value[U] > allocated) refuse("used-above-allocated", U);
    for (int first = E1; first < ML; first++)
        for (int last = first + 1; last <= ML; last++)
            if (known[first] && known[last] && value[first] > value[last]) refuse("ends-out-of-order", last);
    if (!known[POSTPONE]) known[POSTPONE] = value[POSTPONE] = 1;
    known[PRIORITY] = 1;
}

static void print(const char *name, long number) {
    if (number == UNKNOWN) printf(", \"%s\": null", name);
    else printf(", \"%s\": %ld", name, number);
}

static void answer(void) {
    int idle = value[U] == 0;
    long end = known[ML] ? value[ML] : batch_end, expected = known[EL] ? value[EL] : UNKNOWN;
    if (batch_end != UNKNOWN) end = MIN(end, batch_end), expected = MIN(expected, batch_end);
    print("remaining_expected", idle ? 0 : expected == UNKNOWN ? UNKNOWN : MAX(0, expected - now));
    print("remaining_max", idle ? 0 : end == UNKNOWN ? UNKNOWN : MAX(0, end - now));
    long draining = UNKNOWN, kill = UNKNOWN;
    if (known[E1] && known[W] && allocated != UNKNOWN) {
        draining = (allocated - value[U]) * MAX(0, value[E1] - now) + value[W];
        if (end != UNKNOWN) draining = MIN(draining, allocated * MAX(0, end - now));
    }
    if (known[S] && known[Q]) {
        kill = value[Q] + value[U] * MAX(0, now - value[S]);
        if (allocated != UNKNOWN && jobstart != UNKNOWN) kill = MIN(kill, allocated * (now - jobstart));
    }
    print("draining_waste", idle ? 0 : draining);
    print("kill_waste", idle && known[Q] ? value[Q] : kill);
}

int main(int count, char **words) {
    struct {
        const char *name;
        long *number;
    } options[] = {{"--now", &now}, {"--allocated", &allocated}, {"--jobstart", &jobstart}, {"--batch-end", &batch_end}};
    for (int at = 2; at < count - 1; at++)
        for (int one = 0; one < 4; one++)
            if (!strcmp(words[at], options[one].name)) *options[one].number = atol(words[at + 1]);
    struct stat folder;
    int directory = open(words[1], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0 || fstat(directory, &folder) || folder.st_mode & 022) refuse("unsafe", KEYS);
    int lock = open_key(directory, U, &folder);
    if (lock < 0) refuse("no-status", U);
    signal(SIGALRM, late);
    alarm(5);
    flock(lock, LOCK_SH);
    alarm(0);
    for (int key = U; key < KEYS; key++) {
        char text[66];
        int file = key == U ? lock : open_key(directory, key, &folder);
        if (file < 0) continue;
        parse(key, text, read(file, text, 65));
        if (file != lock) close(file);
    }
    flock(lock, LOCK_UN);
    check();
    printf("{\"error\": null, \"flags\": [], \"keys\": {");
    for (int key = U; key < KEYS; key++) {
        printf("%s\"%s\": ", key ? ", " : "", names[key]);
        if (!known[key]) printf("null");
        else if (key == POSTPONE) printf(value[key] ? "true" : "false");
        else printf("%ld", value[key]);
    }
    printf("}");
    answer();
    puts("}");
    return 0;
}
