//! `cargo xtask api`: lists the public items of each published library, one on each line, so that a review
//! shows any change of them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use crate::workspace::{Result, cargo, output, root, run};

/// Where the listings are kept.
const LISTINGS: &str = "docs/api";
/// The program that turns rustdoc's JSON into lines: a workspace of its own, because it has to match the
/// compiler.
const LISTER: &str = "xtask/api/Cargo.toml";

/// Whether to write or to compare.
#[derive(Args)]
pub(crate) struct Options {
    /// Writes nothing, and fails if a listing does not match the code
    #[arg(long)]
    check: bool,
}

/// Writes the listings, or compares them with the committed ones.
pub(crate) fn run_api(options: &Options) -> Result<()> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version=1", "--quiet"]))?;
    let target = target(&metadata)?;
    let rustdoc = rustdoc(&target)?;
    let mut stale = Vec::new();
    for package in published_libraries(&metadata)? {
        let text = listing(&package, &target, &rustdoc)?;
        let file = root().join(LISTINGS).join(format!("{package}.txt"));
        if !options.check {
            write(&file, &text)?;
            println!("api: wrote {LISTINGS}/{package}.txt, {} items", text.lines().count());
        } else if fs::read_to_string(&file).ok().as_ref() != Some(&text) {
            stale.push(package);
        }
    }
    if stale.is_empty() { Ok(()) } else { Err(format!("stale: {}; run `cargo xtask api`", stale.join(", "))) }
}

/// Returns the packages that have a library and may be published.
fn published_libraries(metadata: &str) -> Result<Vec<String>> {
    let metadata: Value =
        serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let is_library = |target: &Value| list(target, "kind").iter().any(|kind| kind.as_str() == Some("lib"));
    let mut names: Vec<String> = list(&metadata, "packages")
        .iter()
        // `publish = false` is an empty list of registries.
        .filter(|package| package.get("publish").is_none_or(Value::is_null))
        .filter(|package| list(package, "targets").iter().any(is_library))
        .filter_map(|package| package.get("name").and_then(Value::as_str).map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

/// Returns the folder of build products.
fn target(metadata: &str) -> Result<PathBuf> {
    let metadata: Value =
        serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let target = metadata.get("target_directory").and_then(Value::as_str);
    target.map(PathBuf::from).ok_or_else(|| "cargo metadata names no target directory".to_owned())
}

fn listing(package: &str, target: &Path, rustdoc: &Path) -> Result<String> {
    let mut document = cargo(&["rustdoc", "--quiet", "--package", package, "--lib", "--all-features"]);
    document.args(["--", "-Z", "unstable-options", "--output-format", "json"]).env("RUSTDOC", rustdoc);
    run(&mut document)?;
    let json = target.join("doc").join(format!("{}.json", package.replace('-', "_")));
    let mut list = cargo(&["run", "--quiet", "--locked", "--manifest-path", LISTER, "--target-dir"]);
    list.arg(target.join("api")).arg("--").arg(json);
    output(&mut list).map_err(|error| {
        format!(
            "{error}\nif the compiler is another, take the version of public-api in {LISTER} that fits it"
        )
    })
}

/// Returns a rustdoc that writes JSON; the stable one does so only with an environment variable. Cargo itself
/// does not get the variable: it would then build every dependency anew.
fn rustdoc(target: &Path) -> Result<PathBuf> {
    let file = target.join("api/rustdoc.sh");
    write(&file, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
            .map_err(|error| format!("cannot make {} executable: {error}", file.display()))?;
    }
    Ok(file)
}

fn write(file: &Path, text: &str) -> Result<()> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(file, text))
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_libraries_that_are_published_are_listed() {
        let package = |name: &str, kind: &str, publish: &str| {
            format!(
                r#"{{"name":"{name}","publish":{publish},"targets":[{{"kind":["test"]}},{{"kind":["{kind}"]}}]}}"#
            )
        };
        let packages = [
            package("b", "lib", "null"),
            package("a", "lib", "null"),
            package("command", "bin", "null"),
            package("own", "lib", "[]"),
        ];
        let metadata = format!(r#"{{"packages":[{}]}}"#, packages.join(","));
        assert_eq!(published_libraries(&metadata).unwrap(), ["a", "b"]);
        assert!(published_libraries("nonsense").is_err());
    }
}
