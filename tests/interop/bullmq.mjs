// Proves with BullMQ's own Node client and bull-board's adapter that our records are BullMQ records.
// Called by tests/it/delivery_interop.rs: REDIS_URL, PREFIX, INTEROP_MODULES (a folder with node_modules: bullmq 6.7, ioredis 5, @bull-board/api),
// WAITING, DELAYED, FINISHED (delivery ids). Prints one JSON line.
import { createRequire } from "node:module";
import assert from "node:assert/strict";

const { REDIS_URL, PREFIX, INTEROP_MODULES, WAITING, DELAYED, FINISHED } = process.env;
const require = createRequire(`${INTEROP_MODULES}/`);
const { Queue, Worker, QueueEvents } = require("bullmq");
const { BullMQAdapter } = require("@bull-board/api/bullMQAdapter");

const { hostname: host, port } = new URL(REDIS_URL);
const options = { connection: { host, port: Number(port), maxRetriesPerRequest: null }, prefix: PREFIX };
const queue = new Queue("jobs", options);
const events = new QueueEvents("jobs", options);
await events.waitUntilReady();

// What a dashboard lists.
const board = new BullMQAdapter(queue);
const counts = await board.getJobCounts();
assert.deepEqual([counts.prioritized, counts.delayed, counts.completed, counts.failed], [1, 1, 1, 0]);
const listed = await board.getJobs(["prioritized", "delayed", "completed"]);
assert.deepEqual(new Set(listed.map((job) => job.id)), new Set([WAITING, DELAYED, FINISHED]));

const waiting = await queue.getJob(WAITING);
assert.equal(waiting.name, "job");
assert.deepEqual(waiting.data, { job: WAITING.split(".g")[0], generation: 1 });
assert.deepEqual([waiting.priority, waiting.opts.attempts, waiting.opts.jobId], [7, 1, WAITING]);
assert.equal(await waiting.getState(), "prioritized");
const delayed = await queue.getJob(DELAYED);
assert.equal(await delayed.getState(), "delayed");
const finished = await queue.getJob(FINISHED);
assert.equal(await finished.getState(), "completed");
assert.ok(finished.finishedOn >= finished.processedOn && finished.processedBy.startsWith("worker-"));

// A Node producer that gives one of our ids finds it taken.
await queue.add("job", { other: true }, { jobId: WAITING, priority: 1 });
assert.deepEqual((await queue.getJob(WAITING)).data, waiting.data);

// A Node worker takes what we published, in the order of priority, and what an operator promotes.
const taken = [];
const worker = new Worker("jobs", async (job) => taken.push(job.id), options);
await waiting.waitUntilFinished(events, 10_000);
await delayed.promote();
await delayed.waitUntilFinished(events, 10_000);
assert.deepEqual(taken, [WAITING, DELAYED]);
await worker.close();

// For our consumer: a pause it has to respect is set and taken back by the Rust side; this one job is no delivery of ours.
const foreign = await queue.add("report", { page: 1 });
await events.close();
await queue.close();
console.log(JSON.stringify({ taken, foreign: foreign.id }));
