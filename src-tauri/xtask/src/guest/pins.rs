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

/// A pure Python package that every guest has. Of wheels with native parts only the Python is taken,
/// which works without them.
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) sha256: &'static str,
    pub(super) licence: &'static str,
}

const fn package(
    name: &'static str,
    version: &'static str,
    licence: &'static str,
    sha256: &'static str,
) -> Package {
    Package {
        name,
        version,
        sha256,
        licence,
    }
}

pub(super) const PACKAGES: [Package; 12] = [
    package(
        "beautifulsoup4",
        "4.15.0",
        "MIT",
        "d6f88de62e1d4e38ecb1077eb9724cd0eff29d2a08ca16a401e9b9e93f117cf9",
    ),
    package(
        "et-xmlfile",
        "2.0.0",
        "MIT",
        "7a91720bc756843502c3b7504c77b8fe44217c85c537d85037f0f536151b2caa",
    ),
    package(
        "jinja2",
        "3.1.6",
        "BSD-3-Clause",
        "85ece4451f492d0c13c5dd7c13a64681a86afae63a5f347908daf103ce6d2f67",
    ),
    package(
        "markupsafe",
        "3.0.4",
        "BSD-3-Clause",
        "434139499bb20b502ed3baa1f169e618f924a97e7a777fea1a49446d80106cf6",
    ),
    package(
        "openpyxl",
        "3.1.5",
        "MIT",
        "5282c12b107bffeef825f4617dc029afaf41d0ea60823bbb665ef3079dc79de2",
    ),
    package(
        "python-dateutil",
        "4.0.0",
        "BSD-3-Clause OR Apache-2.0",
        "a5e246f79eb80475e691bf93862cead98decd8a498cf53ba0516fcdc0f50dc1c",
    ),
    package(
        "pyyaml",
        "6.0.4",
        "MIT",
        "50588147ab2c6a59b5f990a4905db80899a6c2bd197e046a6201f1e67587e794",
    ),
    package(
        "six",
        "1.17.0",
        "MIT",
        "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274",
    ),
    package(
        "soupsieve",
        "4.1.3",
        "MIT",
        "7a390d1a57d1ab7bb228531e9b8a750a5ebf87db774e0ef6faeeac057d22a5bf",
    ),
    package(
        "tabulate",
        "0.10.0",
        "MIT",
        "f0b0622e567335c8fabaaa659f1b33bcb6ddfe2e496071b743aa113f8774f2d3",
    ),
    package(
        "typing-extensions",
        "4.16.0",
        "PSF-2.0",
        "481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8",
    ),
    package(
        "tzdata",
        "2026.6",
        "Apache-2.0",
        "0a10eec6e13ef16b627fabed9a5f2ba61a62b1c67f327305f4e7e412a70b4aec",
    ),
];

/// What is inside, for people and for licence scanners.
pub(super) fn inventory(files: &[(&str, String)], index: Option<&str>) -> serde_json::Value {
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
    parts.extend(PACKAGES.map(|package| {
        json!({
            "name": package.name,
            "version": package.version,
            "licence": package.licence,
            "sha256": package.sha256,
            "package": true,
        })
    }));
    json!({
        "index": index,
        "files": files
            .iter()
            .map(|(name, hash)| json!({"name": name, "sha256": hash}))
            .collect::<Vec<_>>(),
        "parts": parts,
    })
}
