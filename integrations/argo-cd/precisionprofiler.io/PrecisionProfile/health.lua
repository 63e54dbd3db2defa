-- Health of a PrecisionProfile, by the first row of README.md's table that fits. Base, package, table and os alone.
local status = obj.status or {}
local nodes = status.nodes or {}
local conditions = {}
for _, row in ipairs(status.conditions or {}) do
  conditions[row.type] = row
end

local function is(type, wanted)
  return conditions[type] ~= nil and conditions[type].status == wanted
end

local function answer(health, type)
  local row = conditions[type] or {}
  return {status = health, message = row.message or ""}
end

if status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "The operator has not seen this spec yet"}
end
if is("Accepted", "False") then
  return answer("Degraded", "Accepted")
end
for _, type in ipairs({"Failed", "Complete"}) do
  local reason = (conditions[type] or {}).reason
  if reason == "CanaryFailed" or reason == "TooManyFailures" then
    return answer("Degraded", type)
  end
end
if status.phase == "Suspended" then
  return answer("Suspended", "Progressing")
end
if is("Failed", "True") and (nodes.succeeded or 0) == 0 then
  return answer("Degraded", "Failed")
end
if is("Succeeded", "True") or is("Complete", "True") then
  local counts = {}
  for _, state in ipairs({"succeeded", "waiting", "failed", "skipped"}) do
    table.insert(counts, state .. ": " .. tostring(nodes[state] or 0))
  end
  return {status = "Healthy", message = "Nodes " .. table.concat(counts, ", ")}
end
return answer("Progressing", "Progressing")
