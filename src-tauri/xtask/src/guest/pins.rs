//! What the embedded Python is made of, each pinned by SHA-256.

use serde_json::json;

/// The engine whose snapshot writer freezes the interpreter; a new one makes a new snapshot.
pub(super) const WASMTIME: &str = "wasmtime 48.0.8";

/// One source archive of CPython. Debian's `orig` archive is upstream's file under another name.
pub(super) struct Python {
    pub(super) version: &'static str,
    pub(super) debian_release: &'static str,
    pub(super) debian_source: &'static str,
    pub(super) upstream: &'static str,
    pub(super) sha256: &'static str,
}

pub(super) const PYTHON: Python = Python {
    version: "3.13.5",
    debian_release: "trixie",
    debian_source: "python3.13",
    upstream: "https://www.python.org/ftp/python/3.13.5/Python-3.13.5.tar.xz",
    sha256: "93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640",
};

/// The C compiler with its WASI libc. Later versions replace the allocator by one that never reuses
/// memory for another size, and a session that met its memory limit could not recover.
pub(super) const ZIG_VERSION: &str = "0.15.2";

/// Hashes of the compiler's wheels: Linux x86-64 and ARM64, macOS ARM64 and x86-64.
pub(super) const ZIG_WHEELS: [&str; 4] = [
    "806316453d1ede7174ed3fefb8e5348154629089c3bb5fe812dfd0e172fac130",
    "edc0aa60ec964a4cf462d40f68d7de242ddf37fd9a80f2afaee6397059463230",
    "acae2a9ce67ed249ad68d42c21bc73b5f9d51a33ba5ea42f609f78683e8d9bb7",
    "47af4f85e3e59bd672126cc026d3a01b516cad24b9a9ea075abfe8532f4c6bc1",
];

/// A C library whose source travels inside a crate.
pub(super) struct Library {
    pub(super) name: &'static str,
    pub(super) crate_name: &'static str,
    pub(super) crate_version: &'static str,
    /// The checksum of the crate's archive.
    pub(super) sha256: &'static str,
    pub(super) licence: &'static str,
    /// The licence's text inside the crate, where there is one.
    pub(super) licence_file: Option<&'static str>,
}

pub(super) const ZLIB: Library = Library {
    name: "zlib",
    crate_name: "libz-sys",
    crate_version: "1.1.33",
    sha256: "fee3f59f4321dab0c78d828942e7aa09d0bd8ad6e78a501977e6bf3d02938045",
    licence: "Zlib",
    licence_file: Some("src/zlib/LICENSE"),
};

pub(super) const BZIP2: Library = Library {
    name: "bzip2",
    crate_name: "bzip2-sys",
    crate_version: "0.1.13+1.0.8",
    sha256: "225bff33b2141874fe80d71e07d6eec4f85c5c216453dd96388240f96e1acc14",
    licence: "bzip2-1.0.6",
    licence_file: Some("bzip2-1.0.8/LICENSE"),
};

pub(super) const XZ: Library = Library {
    name: "liblzma",
    crate_name: "liblzma-sys",
    crate_version: "0.4.9",
    sha256: "7c7e3581f367a78d7b7e7ae948d023310556f0cfc13156c2e4e00e25616492b9",
    licence: "0BSD",
    licence_file: Some("xz/COPYING.0BSD"),
};

pub(super) const SQLITE: Library = Library {
    name: "SQLite",
    crate_name: "libsqlite3-sys",
    crate_version: "0.40.0",
    sha256: "b06e69070b7e12262b0cd90832f0a7396f142a2b330181255562decf9f0c6215",
    licence: "blessing",
    licence_file: None,
};

pub(super) const LIBRARIES: [&Library; 4] = [&ZLIB, &BZIP2, &XZ, &SQLITE];

/// What is inside, for people and for licence scanners.
pub(super) fn inventory(files: &[(&str, String)]) -> serde_json::Value {
    let mut parts = vec![
        json!({
            "name": "CPython", "version": PYTHON.version, "licence": "PSF-2.0",
            "sha256": PYTHON.sha256,
        }),
        json!({
            "name": "wasi-libc and compiler-rt, by zig", "version": ZIG_VERSION,
            "licence": "MIT AND Apache-2.0 WITH LLVM-exception",
            "sha256": ZIG_WHEELS,
        }),
    ];
    parts.extend(LIBRARIES.map(|library| {
        json!({
            "name": library.name,
            "version": format!("{} {}", library.crate_name, library.crate_version),
            "licence": library.licence,
            "sha256": library.sha256,
        })
    }));
    json!({
        "files": files
            .iter()
            .map(|(name, hash)| json!({"name": name, "sha256": hash}))
            .collect::<Vec<_>>(),
        "parts": parts,
    })
}
