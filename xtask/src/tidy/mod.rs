//! `cargo xtask tidy`: checks those of the project's rules that a program can check.

mod circles;
mod contract;
mod file;
mod files;
mod layers;
mod links;
mod manifests;
mod modules;
mod roles;
mod source;
mod words;

use std::collections::BTreeSet;
use std::path::Path;

use self::file::{File, Finding};

use crate::workspace::{self, Result, cargo, command};

/// Checks every rule and prints each violation.
pub(crate) fn run_tidy() -> Result<()> {
    let files = read_files()?;
    let packages = manifests::parse(&workspace::output(&mut cargo(&[
        "metadata",
        "--no-deps",
        "--format-version=1",
        "--quiet",
    ]))?)?;
    let findings = check(&files, &packages);
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, of which {}", files.len(), files::sizes(&files));
    match findings.len() {
        0 => Ok(()),
        n => Err(format!("{n} rules do not hold: see above")),
    }
}

fn check(files: &[File], packages: &[manifests::Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(files::check(file));
        if file.is_rust() {
            let source = source::Source::parse(&file.text);
            findings.extend(words::check(file, &source));
            findings.extend(layers::check(file, &source));
        }
    }
    findings.extend(manifests::check(packages, files));
    findings.extend(contract::check(files));
    findings.extend(links::check(files));
    findings.extend(circles::check(files));
    findings.extend(modules::check(files));
    findings.extend(roles::check(files));
    findings.sort();
    findings
}

/// The project's text files.
fn read_files() -> Result<Vec<File>> {
    let root = workspace::root();
    let paths = if workspace::succeeds("git", GIT_LIST) {
        let list = workspace::output(command("git").args(GIT_LIST))?;
        list.split_terminator('\0').map(str::to_owned).collect()
    } else {
        println!("tidy: git does not list this folder, so every file in it is read");
        let mut paths = BTreeSet::new();
        walk(&root, &root, &mut paths)?;
        paths
    };
    // A file that is deleted but still in the index, or that is not text, has nothing to check.
    let read = |path: String| std::fs::read_to_string(root.join(&path)).ok().map(|text| File { path, text });
    let files: Vec<_> = paths.into_iter().filter_map(read).collect();
    if files.iter().any(File::is_rust) { Ok(files) } else { Err("there is no Rust file to check".to_owned()) }
}

/// Lists what git tracks or would track.
const GIT_LIST: &[&str] = &["ls-files", "-z", "--cached", "--others", "--exclude-standard"];

/// Collects every file below `folder`, with its path from `root`, except build products and git's own files.
fn walk(root: &Path, folder: &Path, paths: &mut BTreeSet<String>) -> Result<()> {
    let fault = |error: std::io::Error| format!("cannot list {}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let path = entry.path();
        if entry.file_type().map_err(fault)?.is_dir() {
            if ![".git", "target"].iter().any(|name| entry.file_name() == *name) {
                walk(root, &path, paths)?;
            }
        } else if let Ok(path) = path.strip_prefix(root) {
            paths.insert(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::file::sample;
    use super::*;

    #[test]
    fn without_git_the_same_files_are_found_and_no_build_products() {
        let mut paths = BTreeSet::new();
        walk(&workspace::root(), &workspace::root(), &mut paths).unwrap();
        assert!(paths.contains("xtask/src/tidy/mod.rs") && paths.contains(".cargo/config.toml"));
        assert!(!paths.iter().any(|path| path.starts_with("target/") || path.starts_with(".git/")));
    }

    #[test]
    fn every_rule_is_wired_in() {
        let long = format!("fn main() {{ unsafe {{ serde::x() }} }}\n{}", "\n".repeat(500));
        let path = format!("see /{}/x", "home");
        let files = [
            sample("adapters/x/src/lib.rs", &long),
            sample("core/src/lib.rs", "//! A.\nuse anyqueue_sqlite::X;\n"),
            sample("core/CONTRACT.md", "### 2. Second\n"),
            sample("README.md", &path),
            sample("a/src/lib.rs", "//! A.\nmod b;\npub struct A(b::B);\n"),
            sample("a/src/b.rs", "//! B.\npub struct B(Box<super::A>);\n"),
            sample("a/src/b/c.rs", "//! C.\n"),
        ];
        let packages = [manifests::Package {
            name: "anyqueue".to_owned(),
            manifest: "core/Cargo.toml".to_owned(),
            dependencies: vec![("sqlx".to_owned(), manifests::Kind::Normal)],
        }];
        let rules: BTreeSet<&str> = check(&files, &packages).iter().map(|finding| finding.rule).collect();
        let all = [
            "circle",
            "contract",
            "dependency",
            "header",
            "layer",
            "length",
            "module",
            "place",
            "role",
            "thin adapter",
            "word",
        ];
        assert_eq!(rules, BTreeSet::from(all));
    }
}
