#!/usr/bin/env bash
# Says where the registry is that containerd-up.sh starts.

echo 127.0.0.1:15000
