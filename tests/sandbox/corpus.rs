//! What the fuzzer has found worth keeping.

use std::path::Path;

/// Hands `body` every input that was kept for `target`.
pub(crate) fn each(target: &str, body: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&corpus).unwrap() {
        body(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "{} is empty", corpus.display());
}
