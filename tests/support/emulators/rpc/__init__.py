"""What the emulators of Google's services share: a gRPC front with faults and a log of calls, machines, a judge."""
