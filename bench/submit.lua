-- Single submissions by wrk: one job each, every one with arguments of its own.
local token, number, id = os.getenv("BENCH_TOKEN"), 0, 0
local seed = os.getenv("BENCH_SEED") or "0"
local threads = 0
-- The job class, for those that have one.
local class = os.getenv("BENCH_JOB_CLASS")
local prefix = class and '"JobClass":"' .. class .. '",' or ""

function setup(thread)
  thread:set("id", threads)
  threads = threads + 1
end

function request()
  number = number + 1
  local body = '{"jobs":[{' .. prefix .. '"JobName":"single","Executable":"/usr/bin/simulate","Arguments":["--seed","' .. seed .. "." ..
    id .. "." .. number .. '"],"StdOutput":"std.out","CPUTime":' .. 3600 * (1 + number % 50) .. '}]}'
  return wrk.format("POST", "/v1/jobs",
    {["Authorization"] = "Bearer " .. token, ["Content-Type"] = "application/json"}, body)
end

function done(summary, latency, requests)
  local failed = summary.errors.status + summary.errors.read + summary.errors.timeout + summary.errors.connect
  io.write(string.format("RESULT requests=%d seconds=%.3f p50_ms=%.3f p99_ms=%.3f failed=%d\n",
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed))
end
