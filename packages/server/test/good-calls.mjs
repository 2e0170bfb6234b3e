/**
 * A client in a process of its own, so that other callers do not take its time: `node
 * good-calls.mjs URL KEY COUNT` asks COUNT times, one after the other, and prints `{"statuses":
 * […], "p50": ms, "p99": ms}`.
 */
const [url, key, count] = process.argv.slice(2);
const statuses = new Set();
const times = [];
// The first ones are slow for the client's own sake, and do not count.
for (let call = -100; call < Number(count); call++) {
  const begun = performance.now();
  const answer = await fetch(url, { headers: { Authorization: `Bearer ${key}` } });
  await answer.arrayBuffer();
  statuses.add(answer.status);
  if (call >= 0) times.push(performance.now() - begun);
}
times.sort((a, b) => a - b);
const at = (part) => times[Math.floor(times.length * part)];
process.stdout.write(JSON.stringify({ statuses: [...statuses], p50: at(0.5), p99: at(0.99) }));
