"""The examples in the help of each command; a test tries them."""

from __future__ import annotations

from collections.abc import Sequence

_TEXT = """\
lode submit hello.jdl                             a description in JDL, CFG or JSON; several, or - for what comes in
lode submit --cores 4 --memory 8GB --time 2h -- ./fit.py data.root
lode submit --array 1-100 -- ./fit.py %s          a hundred jobs; %s is the number of each
lode submit --each-line samples.txt --keep '*.bam' -- ./align.sh %s
lode submit --after-ok 12-40 merge.jdl            when these have ended well
lode submit align.sh                              with the meaning of its #SBATCH, #$, #PBS or #BSUB lines
lode submit --dry-run align.sh                    show the jobs and submit nothing
lode plan job hello.jdl                           would it run, where, and when?
lode plan job --cores 64 -- ./fit.py
lode plan share physics=3 biology=1               each group's part, now and then
lode plan resources sites.toml                    these files instead of those in use
lode plan resources --add lyon.toml               these files as well
lode status                                       your submissions, the newest first
lode status 12-40                                 these jobs
lode status --jobs --state Failed --since 2h
lode status --job-group prod7 --watch
lode status --jobs --where Site=Lyon --columns job,state,site --sort -age
lode output 12-40 --dir results                   into results/12, results/13...
lode output --job-group prod7 --state Done
lode logs 12
lode logs 12 --follow                             until it ends
lode show 12
lode show 12 --description --form jdl             as it would be submitted anew
lode events 12
lode kill 12-40,50
lode kill --job-group prod7 --state Waiting --dry-run
lode hold 12-40 --reason "wrong input"
lode hold --name 'fit-*'
lode release 12-40
lode release --submission 7
lode reschedule 12-40
lode reschedule --job-group prod7 --state Failed
lode delete 12-40
lode delete --job-group prod7 --state Done --dry-run
lode change 12 Memory=2000
lode change 12-40,50 Site=Lyon,Rome Tag=          no Tag any more
lode change 12 'Arguments={"-n", "a b"}' --dry-run
lode change 12 JobClass=sleeper.long              NONE: no class
lode change --job-group prod7 CPUTime=2h
lode wait 12-40
lode wait 12-40 --any                             until the first has ended
lode wait --job-group prod7 --timeout 2h
lode why 42                                       why job 42 waits
lode why 42 --verbose                             the whole way, and the director's arithmetic
lode why 42 --queue LCG.North/ce.north/short      what this queue has against job 42
lode why 42 --json                                for programs: .verdict, .main_reason, .chain[], .queues.nearest[]
lode why pilot:7                                  why pilot 7 got nothing; or --pilot 7, or its stamp
lode why LCG.North/ce.north/short                 why no pilots go there; or --queue SITE/CE/QUEUE
lode share 7 ada @physics                         a user and a group
lode share 7                                      who may read it?
lode unshare 7 @physics
lode pilot ls
lode pilot ls --all --limit 20                    also those that have ended
lode pilot show 7                                 or its stamp
lode pilot logs 7
lode pilot drain 7-9
lode pilot file --queue LCG.North/ce.north/short --count 10 --dir pilots
lode host ls
lode host ls --sort -failed_at_once --format '{host} {site}'
lode host close node7 --site LCG.North --reason "bad disk"
lode host open node7 --site LCG.North
lode site ls
lode site show LCG.North
lode site show LCG.North/ce.north --origin        with the file that each value is from
lode site close LCG.North --reason "power cut"    all of a site
lode site close LCG.North/ce7/long --reason full --for 2h
lode site close LCG.North --reason test --until "2026-12-01 08:00" --keep-pilots
lode site close LCG.North --reason power --from "2026-12-04 08:00" --for 8h   so that nothing runs there then
lode site close LCG.North --reason test --dry-run how many queues and pilots are there?
lode site open LCG.North                          also if it is only going to be closed
lode site open LCG.North/ce7/long
lode site gate LCG.North
lode site gate LCG.North --day
lode site gate LCG.North --json | jq .shut
lode site token LCG.North --output north.token    a file that only you can read, to be taken to the site
lode site token LCG.North --days 90 --note "ce7, cron of ada"
lode site test LCG.North                          its open queues, up to 20
lode site test LCG.North --queue ce7/long --timeout 1800
lode queue ls
lode queue ls --site LCG.North --origin
lode queue show LCG.North/ce.north/short
lode queue breaker LCG.North/ce.north/short close --reason "disk is mended"
lode queue breaker LCG.North/ce.north/short auto
lode tq ls
lode tq ls --reason queued-behind
lode tq reasons
lode pool ls
lode pool show 3fa8                               the beginning of its id
lode director show
lode director show 5                              all that kept pilots from task queue 5
lode director plan 5
lode class ls
lode class show sleeper                           for lode class change
lode class show sleeper --effective long          all that a job gets with sleeper.long
lode class check sleeper.jc
lode class add sleeper.jc
lode class change sleeper.jc
lode class disable sleeper.long
lode class enable sleeper.long
lode class rm sleeper
lode class rm classes/                            those in its files
lode quota ls
lode quota show
lode quota show --user ada
lode quota resources
lode quota text > limits.rqs                      for lode quota change
lode quota check limits.rqs
lode quota plan limits.rqs                        which jobs would wait?
lode quota add limits.rqs
lode quota change limits.rqs
lode quota rm per_user
lode usage shares
lode init                                         here
lode init /srv/lodesman
lode server
lode server --config /srv/lodesman/lode.toml
lode config check lode.toml
lode config status
lode config schema
lode db check
lode db check --config /srv/lodesman/lode.toml
lode db backup /backup/lode.db
eval "$(lode db backup /backup/lode.dump)"        with PostgreSQL
lode db copy lode-data/lode.db postgresql://lode@db.example.org/lode
lode db copy lode.toml sqlite:////srv/lodesman/copy.db
lode db migrate --dry-run
lode db migrate --config /srv/lodesman/lode.toml
lode user ls
lode user add ada --vo lab --group physics
lode user add bob --vo lab --group physics --group biology --vo-admin
lode user import users.csv --dry-run
lode user import users.csv                        name,vo,groups,role / ada,local,users,admin
lode user import users.jsonl                      {"name": "ada", "vo": "local", "groups": ["users", "hep"]}
lode user disable ada
lode user enable ada
lode user rm ada --dry-run
lode user rm ada --kill                           and her jobs
lode group ls
lode group show physics
lode group set physics --share 3 --reason "as agreed in May"
lode group set physics --share 10 --until 2026-12-24 --reason "data for the paper"
lode group reset physics --reason "the paper is out"
lode group add-user physics ada bob
lode group rm-user physics bob
lode token ls
lode token issue ada --days 90 --output ada.token
lode token revoke 9f3a
lode audit --days 7 --by ada
lode audit --format csv > audit.csv
lode whoami
lode convert job.jdl --to cfg
lode convert job.cfg --to json --check
lode import gridengine qconf-dumps --dry-run
lode import gridengine qconf-dumps --to site --site LCG.North
lode classad eval machine.ad
lode classad eval machine.ad job.ad -e 'TARGET.Memory / 2'
lode classad match machine.ad job.ad
lode completion bash
"""


def examples_of(path: Sequence[str]) -> list[str]:
    """The lines of a command, such as ("site", "close")."""
    words = ["lode", *path]
    return [line for line in _TEXT.splitlines() if command_line(line).split()[: len(words)] == words]


def command_line(line: str) -> str:
    """Without its remark and the words of the shell around it."""
    return line.removeprefix('eval "$(').split(')"')[0].split("   ")[0].split(" | ")[0].split(" > ")[0]
