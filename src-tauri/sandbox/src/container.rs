//! Backend 1: a container of Docker or Podman.
