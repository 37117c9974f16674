-- The request of one load for wrk, from the files named by WRK_HEADERS and WRK_BODY. `"id":1` becomes a new number in each
-- request, because servers with sessions mix up concurrent requests with equal ids. The last line printed is the result.
local function read(name)
  local file = io.open(os.getenv(name), "rb")
  local text = file:read("*a")
  file:close()
  return text
end

wrk.method = "POST"
for name, value in read("WRK_HEADERS"):gmatch("([^:\n]+): ([^\n]*)") do
  wrk.headers[name] = value
end
local body = read("WRK_BODY")
local from, to = body:find('"id":1', 1, true)
local id = 1000000
local fixed

function init()
  if not from then
    fixed = wrk.format(nil, nil, nil, body)
  end
end

function request()
  if fixed then
    return fixed
  end
  id = id + 1
  return wrk.format(nil, nil, nil, body:sub(1, from + 4) .. id .. body:sub(to + 1))
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.status + errors.connect + errors.read + errors.write + errors.timeout
  local line = '{"requests":%d,"us":%d,"failed":%d,"p50":%d,"p99":%d}\n'
  io.write(line:format(summary.requests, summary.duration, failed, latency:percentile(50), latency:percentile(99)))
end
