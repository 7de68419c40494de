/* A reader that is not ours: READER KIND DIRECTORY COUNT SECONDS, with KIND flock, fcntl, ofd or none. It prints the nine
   files in a line, as often as COUNT says or, if that is 0, for SECONDS. READER KIND-held DIRECTORY: whether the lock is
   held by others (exit code 1) or not (0). READER KIND-hold DIRECTORY: takes it, says so, and keeps it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static const char *keys[] = {"used_CPU", "last_job_start", "first_exp_job_end", "last_exp_job_end", "last_max_job_end",
    "add_uncom_time", "add_final_exp_waste", "can_postpone_last_job", "priority_factor"};

static int lock(int file, const char *kind, int wait) {
    struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    if (!strncmp(kind, "flock", 5)) return flock(file, LOCK_SH | (wait ? 0 : LOCK_NB));
    if (!strncmp(kind, "fcntl", 5)) return fcntl(file, wait ? F_SETLKW : F_SETLK, &range);
    if (!strncmp(kind, "ofd", 3)) return fcntl(file, wait ? F_OFD_SETLKW : F_OFD_SETLK, &range);
    return 0;
}

int main(int count, char **words) {
    const char *kind = words[1], *mode = strchr(kind, '-');
    if (count < 3 || chdir(words[2])) return 2;
    long most = count > 3 ? atol(words[3]) : 1;
    time_t ends = time(NULL) + (count > 4 ? atol(words[4]) : 0);
    srand(getpid());
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (long done = 0; most ? done < most : time(NULL) < ends; done++) {
        int file = open("used_CPU", O_RDONLY);
        if (file < 0) return 3;
        if (mode && !strcmp(mode, "-held")) return lock(file, kind, 0) ? 1 : 0;
        if (lock(file, kind, 1)) return 4;
        if (mode) {
            puts("held");
            for (;;) pause();
        }
        char line[1024] = "", value[65];
        for (int at = 0; at < 9; at++) {
            int one = at ? open(keys[at], O_RDONLY) : file;
            ssize_t length = one < 0 ? 0 : read(one, value, 64);
            value[length < 0 ? 0 : length] = 0;
            for (char *mark = value; *mark; mark++)
                if (*mark == '\n') *mark = ' ';
            /* The locks of fcntl go when any descriptor of the file is closed: used_CPU is opened once. */
            if (at && one >= 0) close(one);
            snprintf(line + strlen(line), sizeof line - strlen(line), "%s:%s;", keys[at], value);
        }
        close(file);
        puts(line);
        usleep(5000 + rand() % 15000); /* else the writer never finds a moment without readers */
    }
    return 0;
}
