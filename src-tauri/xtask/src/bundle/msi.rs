//! The package of Windows Installer. The packaging program's own asks for an administrator; this one
//! installs for the user who started it, as the other installer does.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::shell::root;

const TEMPLATE: &str = include_str!("per_user.wxs");

/// Write the template with the files of the embedded Python in it; gives its path.
pub(super) fn template(python: &Path) -> anyhow::Result<PathBuf> {
    let mut names = Vec::new();
    for entry in
        std::fs::read_dir(python).with_context(|| format!("cannot read {}", python.display()))?
    {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let folder = root().join("target/bundle");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("per_user.wxs");
    std::fs::write(&path, filled(python, &names))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn filled(python: &Path, names: &[String]) -> String {
    let (mut components, mut references) = (String::new(), String::new());
    for (number, name) in names.iter().enumerate() {
        let id = format!("Python{number}");
        let _ = write!(
            components,
            r#"      <Component Id="{id}" Guid="{guid}">
        <RegistryValue Root="HKCU" Key="Software\{{{{manufacturer}}}}\{{{{product_name}}}}" Name="{id}" Type="integer" Value="1" KeyPath="yes" />
        <File Id="File{id}" Source="{source}" />
        <RemoveFolder Id="Remove{id}" On="uninstall" />
      </Component>
"#,
            guid = guid(name),
            source = python.join(name).display(),
        );
        let _ = writeln!(references, "      <ComponentRef Id=\"{id}\" />");
    }
    TEMPLATE
        .replace("@python@", &components)
        .replace("@references@", &references)
}

/// The same for a file in every version: what Windows Installer knows a component by.
fn guid(name: &str) -> String {
    let mut text = String::new();
    for (at, byte) in Sha256::digest(format!("runbridge/python/{name}"))
        .into_iter()
        .take(16)
        .enumerate()
    {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02X}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_of_python_is_a_component_of_its_own() {
        let names = ["inventory.json", "python.wasm"].map(str::to_owned);
        let text = filled(Path::new("folder"), &names);
        assert!(!text.contains('@'), "{text}");
        let source = Path::new("folder").join("python.wasm");
        assert!(text.contains(&format!("Source=\"{}\"", source.display())));
        for id in ["Python0", "Python1"] {
            assert!(text.contains(&format!("<ComponentRef Id=\"{id}\" />")));
        }
        assert_ne!(guid("inventory.json"), guid("python.wasm"));
        assert_eq!(guid("python.wasm").len(), 36);
    }

    #[test]
    fn nothing_of_it_needs_an_administrator() {
        assert!(TEMPLATE.contains(r#"InstallScope="perUser""#));
        for of_the_machine in ["perMachine", "ProgramFiles", r#"RegistryValue Root="HKLM""#] {
            assert!(!TEMPLATE.contains(of_the_machine), "{of_the_machine}");
        }
    }
}
