"""Object stores, Google Batch, Cloud TPU and the metadata server on loopback, for real clients; tests steer them.

A test takes the fixtures of `emulators.fixtures`. Each store runs in a process of its own, so that a client which
blocks the interpreter cannot block the server it waits for. These are emulators: no real project confirmed them.

What to know of the clients when injecting faults and counting calls:

- All of them try again by themselves. A fault that stays costs 2 minutes with google-cloud-storage, half a minute with
  gcsfs, 2 to 15 seconds with botocore, 40 seconds with s3fs: use `times`, or turn the client's retries off.
- After a lost answer they repeat conditional writes too, and report the conflict with themselves (412, or
  `FileExistsError`), and a deletion that worked as "not found". aiohttp, under gcsfs and s3fs, repeats a lost GET, PUT
  or DELETE once whatever the retries are set to, if the connection was used before.
- google-cloud-storage asks for each bucket's metadata in a background thread, and after a 404 again: a call without
  an object, which also takes faults. Give rules a `path` with the object's name, count calls that have an `object`.
- gcsfs has no time limit on a call: what hangs, hangs until the faults are cleared.
- s3fs asks HEAD before it reads.
- Google's clients for Batch try get and list again after UNAVAILABLE, for a minute; create, delete and cancel never.
  That for TPUs never tries again, and has no time limit. Reading the metadata of its operations is a TypeError.
"""
