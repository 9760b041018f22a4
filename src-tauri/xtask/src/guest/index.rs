//! The package index that the installer inside CPython's sources asks by itself, so that packages come
//! from where the users of this Python expect, and nobody here has to know its address.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};

/// Where the sources keep the installer, and where that names the index.
const INSTALLER: &str = "Lib/ensurepip/_bundled";
const MODULE: &str = "pip/_internal/models/index.py";

/// The line that names it: `PyPI = PackageIndex("https://HOST/", ...)`.
const NAMED: &str = "PyPI = PackageIndex(";

/// The address of the index, for the unpacked sources of CPython.
pub(super) fn of_source(source: &Path) -> anyhow::Result<String> {
    let folder = source.join(INSTALLER);
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("pip-") && name.ends_with(".whl") {
            let mut text = String::new();
            zip::ZipArchive::new(File::open(&path)?)?
                .by_name(MODULE)?
                .read_to_string(&mut text)?;
            return of_text(&text)
                .with_context(|| format!("{}: {MODULE} names no index", path.display()));
        }
    }
    bail!("{} holds no installer", folder.display())
}

fn of_text(text: &str) -> Option<String> {
    let (_, after) = text.split_once(NAMED)?;
    let (_, after) = after.split_once('"')?;
    let (address, _) = after.split_once('"')?;
    address
        .starts_with("https://")
        .then(|| format!("{}/simple", address.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_read_out_of_the_installer() {
        let text = "class PackageIndex:\n    pass\n\nPyPI = PackageIndex(\n    \"https://index.example/\", \
                    file_storage_domain=\"files.example\"\n)\nTest = 1\n";
        assert_eq!(
            of_text(text).as_deref(),
            Some("https://index.example/simple")
        );
        assert_eq!(of_text("PyPI = PackageIndex(1)"), None);
        assert_eq!(of_text("PyPI = PackageIndex(\"http://x/\")"), None);
    }
}
