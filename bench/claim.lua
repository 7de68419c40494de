-- Claims by wrk: each request asks as one of the pilots, with a claim token of its own, for what fits its place.
local pilots, count, wait = {}, os.getenv("BENCH_COUNT") or "1", os.getenv("BENCH_WAIT") or "0"
local seed = os.getenv("BENCH_SEED") or "0"
local last_end = os.getenv("BENCH_LAST_END") or ""
if last_end ~= "" then last_end = ',"last_end_s":' .. last_end end
local cores = os.getenv("BENCH_CORES") or ""
local number, threads = 0, 0

function setup(thread)
  thread:set("id", threads)
  threads = threads + 1
end

function init(args)
  for line in io.lines(os.getenv("BENCH_TOKENS")) do
    local token, has, memory = line:match("^(%S+) ?(%d*) ?(%d*)$")
    if has == "" then has, memory = "64", "0" end
    if cores ~= "" then has = cores end
    pilots[#pilots + 1] = {token, '{"cores":' .. has .. ',"memory_mb":' .. memory .. ',"norm_cpu_seconds":0' .. last_end .. "}"}
  end
end

function request()
  number = number + 1
  local pilot = pilots[number % #pilots + 1]
  local body = '{"claim_token":"' .. seed .. "-" .. id .. "-" .. number .. '-abcdefgh","count":' .. count ..
    ',"wait_s":' .. wait .. ',"resource":' .. pilot[2] .. '}'
  return wrk.format("POST", "/v1/pilots/claim",
    {["Authorization"] = "Bearer " .. pilot[1], ["Content-Type"] = "application/json"}, body)
end

function done(summary, latency, requests)
  local failed = summary.errors.status + summary.errors.read + summary.errors.timeout + summary.errors.connect
  io.write(string.format("RESULT requests=%d seconds=%.3f p50_ms=%.3f p99_ms=%.3f failed=%d\n",
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, failed))
end
