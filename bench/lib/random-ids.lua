-- Asks for services in random order: wrk … -s random-ids.lua URL -- FILE PREFIX, where FILE holds an id a line.
local paths = {}

function init(args)
  for id in io.lines(args[1]) do
    paths[#paths + 1] = wrk.format("GET", args[2] .. id)
  end
  math.randomseed(os.time())
end

function request()
  return paths[math.random(#paths)]
end
