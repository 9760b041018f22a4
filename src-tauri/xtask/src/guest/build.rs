//! Compile: the C libraries, a Python for this machine that the cross build needs, CPython for
//! WebAssembly, and the module that holds them all.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context as _, bail};

use super::stage::{self, Inputs};
use super::{fetch, pins};
use crate::shell;

/// Dates inside the module: the release of the pinned CPython, not the day of the build.
const SOURCE_DATE_EPOCH: &str = "1749600000";

const TARGET_FLAGS: [&str; 6] = [
    "-target",
    "wasm32-wasi",
    // zig's default for unoptimised code, where configure tests it.
    "-fno-sanitize=undefined",
    // CPython's build information; reproducible by SOURCE_DATE_EPOCH.
    "-Wno-date-time",
    // CPython's own allocator takes its arenas by mmap.
    "-D_WASI_EMULATED_MMAN",
    // Missing from the WASI headers, used by the socket module that can open none.
    "-DSOCK_RAW=3",
];

/// The compiler, in the folder that its wheel is unpacked into.
const ZIG: &str = "ziglang/zig";

/// To be changed with what [`build_libraries`] and [`cross`] do, so that it is done anew.
const CROSS_RECIPE: &str = "2";

/// The libraries of CPython that its own build keeps apart.
const EXTRA_LIBRARIES: [&str; 3] = [
    "Modules/_decimal/libmpdec/libmpdec.a",
    "Modules/expat/libexpat.a",
    "Modules/_hacl/libHacl_Hash_SHA2.a",
];

/// The folder with `python.wasm` (not yet started), `python.zip` and `LICENSES.txt`.
pub(super) fn python(root: &Path, recipe: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(root)?;
    let library_inputs = pins::LIBRARIES
        .iter()
        .fold(Inputs::new("libraries"), |inputs, library| {
            inputs.text(library.sha256)
        });
    let package_inputs = pins::PACKAGES
        .iter()
        .fold(Inputs::new("packages"), |inputs, package| {
            inputs.text(package.sha256)
        });
    let native_inputs = Inputs::new("native").text(pins::PYTHON.sha256).text("1");

    let cross_inputs = |zig: &Path, source: &Path, libraries: &Path| {
        Inputs::new("cross")
            .stage(zig)
            .stage(source)
            .stage(libraries)
            .text(CROSS_RECIPE)
            .text(&TARGET_FLAGS.join(" "))
    };
    fetch::tools()?;
    announce(root);
    let zig = zig_folder(root)?;
    let source = source(root)?;
    let libraries = stage::run(root, library_inputs, fetch::libraries)?;
    let native = stage::run(root, native_inputs, |out| native(&source, out))?;
    let packages = stage::run(root, package_inputs, fetch::packages)?;
    let cross = stage::run(root, cross_inputs(&zig, &source, &libraries), |out| {
        let compiler = Compiler::new(&zig, root, out)?;
        build_libraries(&compiler, &libraries, out)?;
        cross(&compiler, &source, &native, out)
    })?;

    let inputs = Inputs::new("python")
        .stage(&cross)
        .stage(&packages)
        .file(&recipe.join("door.c"))?
        .file(&recipe.join("missing.c"))?
        .file(&recipe.join("pack.py"))?;
    stage::run(root, inputs, |out| {
        let compiler = Compiler::new(&zig, root, &cross)?;
        link(&compiler, &source, recipe, &cross, out)?;
        pack(&native, &source, &packages, recipe, out)?;
        licences(&source, &libraries, &packages, out)
    })
}

/// The C compiler.
#[cfg(target_os = "linux")]
pub(super) fn zig(root: &Path) -> anyhow::Result<PathBuf> {
    fetch::tools()?;
    Ok(zig_folder(root)?.join(ZIG))
}

fn zig_folder(root: &Path) -> anyhow::Result<PathBuf> {
    let inputs = pins::ZIG_WHEELS
        .iter()
        .fold(Inputs::new("zig"), |inputs, hash| inputs.text(hash));
    stage::run(root, inputs, fetch::zig)
}

/// The folder with CPython's source, mended where this compiler needs it.
pub(super) fn source(root: &Path) -> anyhow::Result<PathBuf> {
    let inputs = Inputs::new("source").text(pins::PYTHON.sha256).text("1");
    stage::run(root, inputs, |out| unpack(&fetch::python(root)?, out))
}

/// Say how long it takes, if it does.
fn announce(root: &Path) {
    let built = fs::read_dir(root).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| {
                entry.file_name().to_string_lossy().starts_with("cross-")
                    && entry.path().join(".done").exists()
            })
        })
    });
    if !built {
        shell::say(
            "building CPython for WebAssembly: this takes about 4 minutes on two idle cores, once",
        );
    }
}

fn unpack(archive: &Path, out: &Path) -> anyhow::Result<()> {
    shell::run_quietly(
        Command::new("tar")
            .arg("--extract")
            .arg("--file")
            .arg(archive)
            .arg("--directory")
            .arg(out)
            .arg("--strip-components=1"),
    )?;
    // The compiler's headers declare it without a result, as POSIX does.
    replace(
        &out.join("Include/cpython/pthread_stubs.h"),
        "PyAPI_FUNC(int) pthread_exit",
        "PyAPI_FUNC(void) pthread_exit",
    )?;
    replace(
        &out.join("Python/thread_pthread_stubs.h"),
        "int\npthread_exit",
        "void\npthread_exit",
    )
}

fn replace(file: &Path, old: &str, new: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(file)?;
    if !text.contains(old) {
        bail!("{} is not as expected: it lacks `{old}`", file.display());
    }
    Ok(fs::write(file, text.replace(old, new))?)
}

/// The cross compiler as the programs that `configure` and `make` expect.
struct Compiler {
    bin: PathBuf,
    cache: PathBuf,
}

impl Compiler {
    fn new(zig: &Path, root: &Path, out: &Path) -> anyhow::Result<Self> {
        let bin = out.join("bin");
        fs::create_dir_all(&bin)?;
        let zig = zig.join(ZIG);
        let script = |name: &str, words: &str| -> anyhow::Result<()> {
            let path = bin.join(name);
            fs::write(
                &path,
                format!("#!/bin/sh\nexec '{}' {words} \"$@\"\n", zig.display()),
            )?;
            shell::run_quietly(Command::new("chmod").arg("+x").arg(&path))?;
            Ok(())
        };
        script("cc", &format!("cc {}", TARGET_FLAGS.join(" ")))?;
        script("ar", "ar")?;
        script("ranlib", "ranlib")?;
        Ok(Self {
            bin,
            cache: root.join("zig-cache"),
        })
    }

    fn tool(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// A command with the compiler's settings around it.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(folder)
            .env("ZIG_GLOBAL_CACHE_DIR", &self.cache)
            .env("ZIG_LOCAL_CACHE_DIR", &self.cache)
            .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH);
        command
    }
}

/// Compile C files into `lib<name>.a`.
struct Archive<'a> {
    name: &'a str,
    folder: PathBuf,
    files: Vec<String>,
    flags: &'a [&'a str],
    headers: &'a [&'a str],
}

fn build_libraries(compiler: &Compiler, libraries: &Path, out: &Path) -> anyhow::Result<()> {
    shell::say("compiling zlib, bzip2, liblzma and SQLite");
    let names = |names: &[&str]| names.iter().map(|name| format!("{name}.c")).collect();
    let xz = libraries.join(pins::XZ.crate_name);
    let mut xz_files = Vec::new();
    for part in [
        "common",
        "lzma",
        "lz",
        "check",
        "delta",
        "rangecoder",
        "simple",
    ] {
        let folder = xz.join("xz/src/liblzma").join(part);
        let mut files = fs::read_dir(&folder)
            .with_context(|| format!("cannot list {}", folder.display()))?
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .filter(|name| Path::new(name).extension().is_some_and(|end| end == "c"))
            // Variants for small code, tables' generators, threads.
            .filter(|name| {
                !["_small.c", "_tablegen.c", "_consts_gen.c", "_mt.c"]
                    .iter()
                    .any(|end| name.ends_with(end))
            })
            .map(|name| format!("xz/src/liblzma/{part}/{name}"))
            .collect::<Vec<_>>();
        files.sort();
        xz_files.extend(files);
    }
    xz_files.push("xz/src/common/tuklib_physmem.c".to_owned());
    let archives = [
        Archive {
            name: "z",
            folder: libraries.join(pins::ZLIB.crate_name).join("src/zlib"),
            files: names(&[
                "adler32", "compress", "crc32", "deflate", "infback", "inffast", "inflate",
                "inftrees", "trees", "uncompr", "zutil",
            ]),
            flags: &[],
            headers: &["zlib.h", "zconf.h"],
        },
        Archive {
            name: "bz2",
            folder: libraries.join(pins::BZIP2.crate_name).join("bzip2-1.0.8"),
            files: names(&[
                "blocksort",
                "huffman",
                "crctable",
                "randtable",
                "compress",
                "decompress",
                "bzlib",
            ]),
            flags: &[],
            headers: &["bzlib.h"],
        },
        Archive {
            name: "lzma",
            folder: xz.clone(),
            files: xz_files,
            flags: &[
                "-DHAVE_CONFIG_H=1",
                "-DNDEBUG",
                "-std=c99",
                "-I.",
                "-Ixz/src/common",
                "-Ixz/src/liblzma/api",
                "-Ixz/src/liblzma/check",
                "-Ixz/src/liblzma/common",
                "-Ixz/src/liblzma/delta",
                "-Ixz/src/liblzma/lz",
                "-Ixz/src/liblzma/lzma",
                "-Ixz/src/liblzma/rangecoder",
                "-Ixz/src/liblzma/simple",
            ],
            headers: &[],
        },
        Archive {
            name: "sqlite3",
            folder: libraries.join(pins::SQLITE.crate_name).join("sqlite3"),
            files: names(&["sqlite3"]),
            flags: &[
                "-D_WASI_EMULATED_GETPID",
                "-DHAVE_USLEEP=0",
                "-DSQLITE_THREADSAFE=0",
                // No shared libraries, no shared memory.
                "-DSQLITE_OMIT_LOAD_EXTENSION",
                "-DSQLITE_OMIT_WAL",
                "-DSQLITE_TEMP_STORE=2",
                "-DSQLITE_ENABLE_FTS5",
                "-DSQLITE_ENABLE_MATH_FUNCTIONS",
            ],
            headers: &["sqlite3.h", "sqlite3ext.h"],
        },
    ];
    fs::create_dir_all(out.join("include"))?;
    fs::create_dir_all(out.join("lib"))?;
    for archive in &archives {
        build_archive(compiler, archive, out)?;
    }
    let api = xz.join("xz/src/liblzma/api");
    copy_headers(&api, &out.join("include"))
}

fn build_archive(compiler: &Compiler, archive: &Archive<'_>, out: &Path) -> anyhow::Result<()> {
    let objects = out.join("objects").join(archive.name);
    fs::create_dir_all(&objects)?;
    let mut made = Vec::new();
    let mut running = Vec::new();
    for (index, file) in archive.files.iter().enumerate() {
        let object = objects.join(format!("{index:03}.o"));
        let child = compiler
            .command(compiler.tool("cc"), &archive.folder)
            .args(["-O2", "-g0", "-Wno-everything"])
            .args(archive.flags)
            .arg("-c")
            .arg(file)
            .arg("-o")
            .arg(&object)
            .spawn()?;
        running.push((file, child));
        made.push(object);
        if running.len() >= jobs() {
            wait(&mut running)?;
        }
    }
    wait(&mut running)?;
    shell::run_quietly(
        compiler
            .command(compiler.tool("ar"), out)
            .arg("rcsD")
            .arg(out.join(format!("lib/lib{}.a", archive.name)))
            .args(&made),
    )?;
    for header in archive.headers {
        fs::copy(
            archive.folder.join(header),
            out.join("include").join(header),
        )?;
    }
    Ok(())
}

fn wait(running: &mut Vec<(&String, std::process::Child)>) -> anyhow::Result<()> {
    for (file, mut child) in running.drain(..) {
        if !child.wait()?.success() {
            bail!("{file} did not compile");
        }
    }
    Ok(())
}

fn copy_headers(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_headers(&path, &target)?;
        } else if path.extension().is_some_and(|extension| extension == "h") {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}

/// A Python of the same version for this machine: the cross build runs it, and so does the packer.
fn native(source: &Path, out: &Path) -> anyhow::Result<()> {
    shell::say("building Python for this machine (half of the time)");
    shell::run_quietly(
        Command::new(source.join("configure"))
            .current_dir(out)
            .args(["--quiet", "--without-ensurepip", "--disable-test-modules"]),
    )?;
    shell::run_quietly(
        Command::new("make")
            .current_dir(out)
            .arg(format!("--jobs={}", jobs())),
    )?;
    Ok(())
}

fn cross(compiler: &Compiler, source: &Path, native: &Path, out: &Path) -> anyhow::Result<()> {
    shell::say("building Python for WebAssembly");
    let build = out.join("python");
    fs::create_dir_all(&build)?;
    let (include, lib) = (out.join("include"), out.join("lib"));
    let libraries = |name: &str| format!("-L{} -l{name}", lib.display());
    let cc = compiler.tool("cc");
    let mut configure = compiler.command(source.join("configure"), &build);
    configure
        .args(["--quiet", "--host=wasm32-wasi"])
        .arg(format!("--build={}", build_triple(source)?))
        .arg(format!(
            "--with-build-python={}",
            native_python(native)?.display()
        ))
        .args([
            "--disable-test-modules",
            "--without-ensurepip",
            "--disable-ipv6",
        ])
        // Half as fast again without; off by default for WASI, which has no mmap of its own.
        .arg("--with-pymalloc")
        .env("CC", &cc)
        .env("CXX", &cc)
        .env("CPP", format!("{} -E", cc.display()))
        .env("AR", compiler.tool("ar"))
        .env("RANLIB", compiler.tool("ranlib"))
        .env(
            "CFLAGS",
            format!("-g0 -ffile-prefix-map={}=.", source.display()),
        )
        .env(
            "CONFIG_SITE",
            source.join("Tools/wasm/config.site-wasm32-wasi"),
        )
        .env("HOSTRUNNER", "true")
        // It would answer for this machine.
        .env("PKG_CONFIG", "false");
    for (variable, library) in [
        ("ZLIB", "z"),
        ("BZIP2", "bz2"),
        ("LIBLZMA", "lzma"),
        ("LIBSQLITE3", "sqlite3"),
    ] {
        configure
            .env(
                format!("{variable}_CFLAGS"),
                format!("-I{}", include.display()),
            )
            .env(format!("{variable}_LIBS"), libraries(library));
    }
    shell::run_quietly(&mut configure)?;
    // Where the source lies serves to find the library of a Python that was not installed. It would
    // be another on each machine, and be in what everybody gets.
    replace(
        &build.join("Makefile"),
        r#"-DVPATH='"$(VPATH)"'"#,
        r#"-DVPATH='""'"#,
    )?;
    shell::run_quietly(
        compiler
            .command("make", &build)
            .arg(format!("--jobs={}", jobs()))
            .arg(static_library())
            .args(EXTRA_LIBRARIES),
    )?;
    Ok(())
}

fn static_library() -> String {
    let version: Vec<&str> = pins::PYTHON.version.split('.').take(2).collect();
    format!("libpython{}.a", version.join("."))
}

fn native_python(native: &Path) -> anyhow::Result<PathBuf> {
    // `python.exe` on file systems that do not tell upper from lower case.
    ["python", "python.exe"]
        .iter()
        .map(|name| native.join(name))
        .find(|path| path.is_file())
        .context("the native build made no Python")
}

fn build_triple(source: &Path) -> anyhow::Result<String> {
    let triple = shell::run_quietly(&mut Command::new(source.join("config.guess")))?;
    Ok(triple.trim().to_owned())
}

/// One module: CPython, the libraries and our door.
fn link(
    compiler: &Compiler,
    source: &Path,
    recipe: &Path,
    cross: &Path,
    out: &Path,
) -> anyhow::Result<()> {
    shell::say("linking the module");
    let build = cross.join("python");
    let include = |path: &str| format!("-I{}", source.join(path).display());
    shell::run_quietly(
        compiler
            .command(compiler.tool("cc"), &build)
            // No `main`: the host calls what is exported.
            .arg("-mexec-model=reactor")
            .args([
                "-O2",
                "-g0",
                "-std=gnu11",
                "-Wno-everything",
                "-Wl,--strip-all",
            ])
            .args([include("Include"), include("Include/internal")])
            .arg(include("Include/internal/mimalloc"))
            .arg("-I.")
            .args(["-D_WASI_EMULATED_SIGNAL", "-D_WASI_EMULATED_GETPID"])
            .arg("-D_WASI_EMULATED_PROCESS_CLOCKS")
            .arg(recipe.join("door.c"))
            .arg(recipe.join("missing.c"))
            .arg(static_library())
            .args(EXTRA_LIBRARIES)
            .arg(format!("-L{}", cross.join("lib").display()))
            .args(["-lsqlite3", "-lz", "-lbz2", "-llzma"])
            .args(["-lwasi-emulated-signal", "-lwasi-emulated-getpid"])
            .args([
                "-lwasi-emulated-mman",
                "-lwasi-emulated-process-clocks",
                "-lm",
            ])
            .args(["-z", "stack-size=8388608"])
            .arg("-o")
            .arg(out.join("python.wasm")),
    )?;
    Ok(())
}

/// The standard library and the bundled packages as bytecode.
fn pack(
    native: &Path,
    source: &Path,
    packages: &Path,
    recipe: &Path,
    out: &Path,
) -> anyhow::Result<()> {
    shell::say("packing the standard library and the bundled packages");
    // Asked for by sysconfig; what it would tell about is not there.
    let extra = out.join("extra");
    fs::create_dir_all(&extra)?;
    fs::write(
        extra.join("_sysconfigdata__wasi_wasm32-wasi.py"),
        "build_time_vars = {}\n",
    )?;
    let library = source.join("Lib");
    for (name, folders) in [
        ("python.zip", vec![library.as_path(), &extra]),
        ("packages.zip", vec![packages]),
    ] {
        let listed = shell::run_quietly(
            Command::new(native_python(native)?)
                .env("PYTHONHASHSEED", "0")
                // Else it looks for it where it was built, and this folder may have been moved.
                .env("PYTHONPATH", &library)
                .arg(recipe.join("pack.py"))
                .arg(out.join(name))
                .args(folders),
        )?;
        shell::say(listed.trim());
    }
    stage::remove(&extra)
}

/// The texts that must travel with the module.
fn licences(source: &Path, libraries: &Path, packages: &Path, out: &Path) -> anyhow::Result<()> {
    let mut text = String::from("The embedded Python contains the following works.\n");
    let mut add = |name: &str, body: &str| {
        let _ = write!(
            text,
            "\n{}\n{name}\n\n{}\n",
            "=".repeat(78),
            body.trim_end()
        );
    };
    add("CPython", &fs::read_to_string(source.join("LICENSE"))?);
    for library in pins::LIBRARIES {
        match library.licence_file {
            Some(file) => {
                let path = libraries.join(library.crate_name).join(file);
                let body = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                add(library.name, &body);
            }
            None => add(library.name, "In the public domain."),
        }
    }
    add(
        "wasi-libc, musl, compiler-rt",
        "MIT, and Apache-2.0 with the LLVM exception. Copyright (c) the musl, wasi-libc and LLVM \
         authors.",
    );
    for (name, body) in package_licences(packages)? {
        add(&name, &body);
    }
    Ok(fs::write(out.join("LICENSES.txt"), text)?)
}

/// Every licence file that a package's wheel brings, under its path.
fn package_licences(packages: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut folders = vec![packages.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let inside = path.strip_prefix(packages)?.display().to_string();
            if path.is_dir() {
                if inside.contains(".dist-info") || folder == packages {
                    folders.push(path);
                }
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = name.to_uppercase();
            let licence = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];
            if inside.contains(".dist-info") && licence.iter().any(|word| name.starts_with(word)) {
                found.push((inside, fs::read_to_string(&path)?));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn jobs() -> usize {
    available_parallelism().map_or(2, usize::from)
}
