//! A wheel: what its name says of it, and whether its content is what may be mounted. Nothing of it is
//! unpacked or executed here.

use std::io::{Cursor, Read as _};
use std::str::FromStr as _;

use pep508_rs::PackageName;
use pep508_rs::pep440_rs::Version;
use zip::{CompressionMethod, ZipArchive};

/// Files in one wheel.
const ENTRIES_MAX: usize = 20_000;

/// How many times larger than the wheel its files may be. Text shrinks to a fifth, tables of numbers to
/// a twentieth; a thousandth is made to harm.
const RATIO_MAX: u64 = 50;

/// `WHEEL` and `METADATA`: the longest known descriptions have some hundred kilobytes.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Requirements of one package.
const REQUIRES_MAX: usize = 1_000;

/// What the name of a file on an index says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WheelName {
    pub(super) name: PackageName,
    pub(super) version: Version,
    /// Those of Python: `py3`, `py38`.
    pythons: Vec<String>,
    /// It runs on one kind of machine alone.
    native: bool,
}

impl WheelName {
    /// `name-version(-build)?-python-abi-platform.whl`; `None` for anything else.
    pub(super) fn read(file: &str) -> Option<Self> {
        let stem = file.strip_suffix(".whl")?;
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+!".contains(&byte);
        if !stem.bytes().all(safe) {
            return None;
        }
        let parts: Vec<&str> = stem.split('-').collect();
        let (name, version, tags) = match parts.as_slice() {
            [name, version, tags @ ..] if tags.len() == 3 => (name, version, tags),
            [name, version, build, tags @ ..]
                if tags.len() == 3 && build.starts_with(|first: char| first.is_ascii_digit()) =>
            {
                (name, version, tags)
            }
            _ => return None,
        };
        Some(Self {
            name: PackageName::from_str(name).ok()?,
            version: Version::from_str(version).ok()?,
            pythons: tags[0].split('.').map(str::to_owned).collect(),
            native: !tags[1].split('.').any(|abi| abi == "none")
                || !tags[2].split('.').any(|platform| platform == "any"),
        })
    }

    /// Whether it has compiled parts.
    pub(super) fn is_native(&self) -> bool {
        self.native
    }

    /// Whether Python 3.`minor` takes it.
    pub(super) fn fits(&self, minor: u64) -> bool {
        !self.native
            && self.pythons.iter().any(|tag| {
                tag == "py3"
                    || tag
                        .strip_prefix("py3")
                        .and_then(|digits| digits.parse().ok())
                        .is_some_and(|least: u64| least <= minor)
            })
    }
}

/// What a wheel says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    /// `Requires-Dist`, as written.
    pub(super) requires: Vec<String>,
    pub(super) requires_python: Option<String>,
}

/// Look whether a file is a pure wheel of this name with nothing in it that does not belong there.
/// The error completes the sentence "<file> is not installed: ...".
pub(super) fn check(name: &WheelName, bytes: &[u8]) -> Result<Contents, String> {
    let broken = |error: zip::result::ZipError| format!("it is no zip that can be read ({error})");
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
    if archive.len() > ENTRIES_MAX {
        return Err(format!(
            "it has {} files, more than {ENTRIES_MAX}",
            archive.len()
        ));
    }
    let mut unpacked = 0_u64;
    let mut infos = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(broken)?;
        let path = entry.name().map_err(broken)?.into_owned();
        if !stays_inside(&path) || entry.is_symlink() {
            return Err(format!("`{}` in it leads out of its place", shown(&path)));
        }
        let stored = CompressionMethod::Stored;
        if entry.encrypted()
            || ![stored, CompressionMethod::Deflated].contains(&entry.compression())
        {
            return Err(format!(
                "`{}` in it is packed in a way that Python does not import from",
                shown(&path)
            ));
        }
        if is_native(&path) {
            return Err(format!(
                "`{}` in it is native code, though its name says that it is pure Python",
                shown(&path)
            ));
        }
        if let Some((folder, rest)) = path.split_once('/') {
            if folder.ends_with(".dist-info") && rest == "WHEEL" {
                infos.push(folder.to_owned());
            }
            let scattered = ["purelib/", "platlib/"];
            if folder.strip_suffix(".data").is_some()
                && scattered.iter().any(|place| rest.starts_with(place))
            {
                return Err(format!(
                    "`{}` in it lies where only an installer would find it",
                    shown(&path)
                ));
            }
        }
        unpacked = unpacked.saturating_add(entry.size());
    }
    if unpacked > (bytes.len() as u64).saturating_mul(RATIO_MAX) {
        return Err(format!(
            "its files have {unpacked} bytes, more than {RATIO_MAX} times what it has"
        ));
    }
    let [info] = infos.as_slice() else {
        return Err("it does not tell what it is (no single .dist-info/WHEEL)".to_owned());
    };
    if !is_info_of(info, name) {
        return Err(format!(
            "its `{}` is that of another package or version",
            shown(info)
        ));
    }
    let wheel = text_of(&mut archive, &format!("{info}/WHEEL"))?;
    if header(&wheel, "Root-Is-Purelib").next() != Some("true") {
        return Err("it says that it is not pure Python (Root-Is-Purelib)".to_owned());
    }
    if !header(&wheel, "Tag").any(|tag| tag.ends_with("-none-any")) {
        return Err("it says that it is for one kind of machine (Tag)".to_owned());
    }
    let metadata = text_of(&mut archive, &format!("{info}/METADATA"))?;
    let of_name = header(&metadata, "Name").next();
    let of_version = header(&metadata, "Version").next();
    let is_it = of_name.and_then(|text| PackageName::from_str(text).ok())
        == Some(name.name.clone())
        && of_version.and_then(|text| Version::from_str(text).ok()) == Some(name.version.clone());
    if !is_it {
        return Err("its METADATA is that of another package or version".to_owned());
    }
    let requires: Vec<String> = header(&metadata, "Requires-Dist")
        .take(REQUIRES_MAX + 1)
        .map(str::to_owned)
        .collect();
    if requires.len() > REQUIRES_MAX {
        return Err(format!("it needs more than {REQUIRES_MAX} packages"));
    }
    Ok(Contents {
        requires,
        requires_python: header(&metadata, "Requires-Python")
            .next()
            .map(str::to_owned),
    })
}

fn stays_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.starts_with('/')
        && !path.contains(['\\', '\0', ':'])
        && path.split('/').all(|part| part != ".." && part != ".")
}

fn is_native(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    let file = file.to_ascii_lowercase();
    [".so", ".pyd", ".dylib", ".dll"]
        .iter()
        .any(|end| file.ends_with(end))
        || file.contains(".so.")
}

fn is_info_of(folder: &str, name: &WheelName) -> bool {
    let stem = folder.strip_suffix(".dist-info").unwrap_or_default();
    let Some((package, version)) = stem.rsplit_once('-') else {
        return false;
    };
    PackageName::from_str(package).is_ok_and(|package| package == name.name)
        && Version::from_str(version).is_ok_and(|version| version == name.version)
}

fn text_of(archive: &mut ZipArchive<Cursor<&[u8]>>, path: &str) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("its `{path}` cannot be read ({error})");
    let entry = archive.by_name(path).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    entry
        .take(TEXT_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The values of a header, as mail has them; the body is not looked at, nor lines that go on.
fn header<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines()
        .take_while(|line| !line.trim().is_empty())
        .filter_map(move |line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
}

/// A path that somebody else chose, fit for a message.
fn shown(path: &str) -> String {
    let cut: String = path.chars().take(120).collect();
    cut.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use std::io::Write as _;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    const PURE: &str = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    const OF_IT: &str =
        "Metadata-Version: 2.1\nName: a_b\nVersion: 1.0\nRequires-Dist: c>=2\n\nDist: x";

    fn zipped(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (path, content) in files {
            let deflated = CompressionMethod::Deflated;
            let options = SimpleFileOptions::default().compression_method(deflated);
            writer.start_file(*path, options).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn checked(wheel: &str, metadata: &str, more: &[(&str, &[u8])]) -> Result<Contents, String> {
        let mut files = vec![
            ("a_b/__init__.py", &b"x = 1\n"[..]),
            ("a_b-1.0.dist-info/WHEEL", wheel.as_bytes()),
            ("a_b-1.0.dist-info/METADATA", metadata.as_bytes()),
        ];
        files.extend(more);
        let name = WheelName::read("a_b-1.0-py3-none-any.whl").unwrap();
        check(&name, &zipped(&files))
    }

    #[test]
    fn names_say_what_takes_the_wheel() {
        for (file, python_13) in [
            ("a_b-1.0-py3-none-any.whl", Some(true)),
            ("a_b-1.0-py2.py3-none-any.whl", Some(true)),
            ("a_b-1.0-py313-none-any.whl", Some(true)),
            ("a_b-1.0-1-py3-none-any.whl", Some(true)),
            ("a_b-1.0-py314-none-any.whl", Some(false)),
            ("a_b-1.0-py2-none-any.whl", Some(false)),
            ("a_b-1.0-cp313-cp313-manylinux_2_17_x86_64.whl", Some(false)),
            ("a_b-1.0-py3-none-win_amd64.whl", Some(false)),
            ("a_b-1.0-py3-none.whl", None),
            ("a_b-one-py3-none-any.whl", None),
            ("../a_b-1.0-py3-none-any.whl", None),
            ("a_b-1.0.tar.gz", None),
        ] {
            let fits = WheelName::read(file).map(|name| name.fits(13));
            assert_eq!(fits, python_13, "{file}");
        }
    }

    #[test]
    fn a_pure_wheel_tells_what_it_needs() {
        let contents = checked(PURE, OF_IT, &[]).unwrap();
        assert_eq!(contents.requires, ["c>=2"]);
    }

    #[test]
    fn what_does_not_belong_into_a_pure_wheel_is_refused() {
        let platform = PURE.replace("none-any", "cp313-linux_x86_64");
        let impure = PURE.replace("true", "false");
        let other = OF_IT.replace("Version: 1.0", "Version: 1.1");
        let bomb = vec![b' '; 4 << 20];
        for (wheel, metadata, more, why) in [
            (PURE, OF_IT, ("../up.py", &b"x"[..]), "leads out"),
            (PURE, OF_IT, ("/etc/x.py", b"x"), "leads out"),
            (PURE, OF_IT, ("a\\..\\x.py", b"x"), "leads out"),
            (
                PURE,
                OF_IT,
                ("a_b/fast.cpython-313.so", b"x"),
                "native code",
            ),
            (PURE, OF_IT, ("a_b/libz.so.1", b"x"), "native code"),
            (PURE, OF_IT, ("a_b/fast.PYD", b"x"), "native code"),
            (
                PURE,
                OF_IT,
                ("a_b-1.0.data/purelib/c.py", b"x"),
                "installer",
            ),
            (PURE, OF_IT, ("c-1.0.dist-info/WHEEL", b"x"), "no single"),
            (PURE, OF_IT, ("a_b/zeros", &bomb), "50 times"),
            (&impure, OF_IT, ("a", b"x"), "Root-Is-Purelib"),
            (&platform, OF_IT, ("a", b"x"), "(Tag)"),
            (PURE, &other, ("a", b"x"), "another package or version"),
        ] {
            let error = checked(wheel, metadata, &[more]).unwrap_err();
            assert!(error.contains(why), "{}: {error}", more.0);
        }
        let name = WheelName::read("a_b-1.0-py3-none-any.whl").unwrap();
        assert!(check(&name, b"<html>").unwrap_err().contains("no zip"));
    }
}
