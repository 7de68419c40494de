"""What `lode init` writes: a commented configuration, one site on this machine, a first job."""

import json
from pathlib import Path

from lodesman.pilot.node import describe_node

LODE = """\
# A Lodesman server. Every value is optional; what stands here are the defaults, unless it says otherwise.
# Check it with: lode config check lode.toml

[server]
host = "127.0.0.1"              # anything but this machine itself needs TLS
port = 7777
data = "lode-data"              # relative to this file; holds the database, sandboxes and the first token
# tls_certificate = "server.pem"
# tls_key = "server.key"
sandbox_mb = 200                # the most that one uploaded file or one job's output may have

[resources]
files = ["sites.toml"]          # sites, queues, groups and their shares: TOML or DIRAC CFG

[admin]                         # the first user; the token is written to lode-data/admin.token
name = "admin"
# vo = "local"                  # default: the first VO of the resources
# groups = ["users"]            # default: all groups of the resources

[pilots]
lease_seconds = 1800            # a pilot that is silent for so long has lost its jobs
heartbeat_seconds = 60
idle_seconds = 120              # a pilot without work leaves after this
life_seconds = 0                # 0: as long as its queue lets it
python = "python3"              # on the worker nodes; 3.9 or newer

[director]                      # how many pilots are sent; all parameters: docs/how-to/administrators.md
PollingTime = 10                # default 60; seconds between iterations
pilotsPerIteration = 40
extraPilots = 4
"""

SLOTS = 2
SITES = """\
# One site: this machine. A queue has what its CE and site have, unless it says otherwise. Parameters may have
# any names; jobs ask for them in their Requirements. Three sites of different shape are in the examples
# folder of the source: three-sites.toml.

[site."this.machine"]
VO = ["local"]

[site."this.machine".ce.here]
Backend = "local"               # pilots are processes of this machine

[site."this.machine".ce.here.queue.default]
Slots = {slots}                       # pilots at the same time
MaxWaitingJobs = 2
MaxTotalJobs = 4
NumberOfProcessors = 1          # cores of each
CPUTime = "1 d"
# What is not declared is not offered: jobs that ask for it cannot run here.
Platform = {platform}
{memory}

[group.users]
vo = "local"
share = 1000
"""

HELLO = """\
// A first job: lode submit hello.jdl
[
    JobName    = "hello";
    Executable = "/bin/echo";
    Arguments  = "hello from a pilot";
    CPUTime    = 60;
]
"""


def sites(root: Path = Path("/")) -> str:
    """The file of the site, with what this machine is: its platform, and of its memory the part of each pilot."""
    node = describe_node(cores=1, root=root)
    part = node.memory_total_mb // SLOTS
    memory = (
        f"Memory = {part:<22} # MB for each pilot"
        if part
        else '# Memory = "2 GB"             # for each pilot'
    )
    return SITES.format(slots=SLOTS, platform=json.dumps(node.platform), memory=memory)
