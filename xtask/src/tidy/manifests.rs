//! Who may depend on whom, according to the manifests.

use serde_json::Value;

use super::file::{File, Finding};
use crate::workspace::{Result, root};

/// A member of the workspace.
pub(super) struct Package {
    pub(super) name: String,
    /// The path from the top folder.
    pub(super) manifest: String,
    pub(super) dependencies: Vec<(String, Kind)>,
}

/// When a dependency is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// For those who use the package.
    Normal,
    /// Only for its own tests and examples.
    Dev,
}

/// Clients of servers, which belong in adapters.
const CLIENTS: &[&str] =
    &["sqlx", "rusqlite", "tokio-postgres", "redis", "lapin", "aws-sdk-sqs", "aws-config"];

/// Those of our crates that the faulty backends are built on.
const BELOW_FAULTS: &[&str] = &["anyqueue", "anyqueue-conformance", "anyqueue-memory"];

/// Those of our crates that the testkit's harness is built on.
const BELOW_TESTKIT: &[&str] = &["anyqueue", "anyqueue-conformance"];

/// Reads the output of `cargo metadata --no-deps`.
pub(super) fn parse(metadata: &str) -> Result<Vec<Package>> {
    let metadata: Value =
        serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let root = root();
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let package = |value: &Value| {
        let manifest = text(value, "manifest_path");
        let relative =
            std::path::Path::new(&manifest).strip_prefix(&root).map(|path| path.display().to_string());
        let dependency = |value: &Value| {
            let kind = if text(value, "kind") == "dev" { Kind::Dev } else { Kind::Normal };
            (text(value, "name"), kind)
        };
        Package {
            name: text(value, "name"),
            manifest: relative.unwrap_or(manifest),
            dependencies: list(value, "dependencies").iter().map(dependency).collect(),
        }
    };
    let packages: Vec<_> = list(&metadata, "packages").iter().map(package).collect();
    if packages.is_empty() { Err("cargo metadata lists no package".to_owned()) } else { Ok(packages) }
}

pub(super) fn check(packages: &[Package], files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        for (dependency, kind) in &package.dependencies {
            let Some(advice) = refusal(package, dependency, *kind, packages) else { continue };
            let file = files.iter().find(|file| file.path == package.manifest);
            findings.push(Finding {
                file: package.manifest.clone(),
                line: file.map_or(1, |file| file.line_of(dependency)),
                rule: "dependency",
                advice: format!("`{dependency}`: {advice}"),
            });
        }
    }
    findings
}

/// Returns why the package must not have the dependency, if so.
fn refusal(package: &Package, dependency: &str, kind: Kind, packages: &[Package]) -> Option<&'static str> {
    let ours = packages.iter().any(|package| package.name == dependency);
    if dependency == "anyqueue-cli" {
        return Some("nothing depends on the command line: move what is shared into a library");
    }
    if kind == Kind::Dev {
        return None;
    }
    let folder = package.manifest.rsplit_once('/').map_or("", |(folder, _)| folder);
    match folder.split('/').next().unwrap_or_default() {
        "core" if ours || CLIENTS.contains(&dependency) => {
            Some("core depends on no backend and on no other of our crates")
        }
        "adapters" if ours && dependency != "anyqueue" => {
            Some("of our crates an adapter depends on `anyqueue` only")
        }
        "conformance-tests" if ours && folder == "conformance-tests" && dependency != "anyqueue" => {
            Some("of our crates the suite depends on `anyqueue` only")
        }
        "conformance-tests" if ours && !BELOW_FAULTS.contains(&dependency) => {
            Some("the faults know core, the suite, and memory, which they spoil")
        }
        "testkit" if ours && !BELOW_TESTKIT.contains(&dependency) => {
            Some("the testkit knows core and the suite alone, so that every other crate can test with it")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::sample;
    use super::*;

    fn package(name: &str, manifest: &str, dependencies: &[(&str, Kind)]) -> Package {
        let dependencies = dependencies.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        Package { name: name.to_owned(), manifest: manifest.to_owned(), dependencies }
    }

    /// Returns the number of findings when the package in this folder has this dependency.
    fn found(folder: &str, dependency: &str, kind: Kind) -> usize {
        let mut packages: Vec<_> =
            ["anyqueue", "anyqueue-memory", "anyqueue-sqlite", "anyqueue-conformance", "anyqueue-cli"]
                .iter()
                .map(|name| package(name, "elsewhere/Cargo.toml", &[]))
                .collect();
        packages.push(package("one", &format!("{folder}/Cargo.toml"), &[(dependency, kind)]));
        check(&packages, &[]).len()
    }

    #[test]
    fn normal_dependencies_follow_the_layers() {
        for (folder, dependency) in [
            ("core", "anyqueue-memory"),
            ("core", "sqlx"),
            ("adapters/sqlite", "anyqueue-memory"),
            ("adapters/sqlite", "anyqueue-conformance"),
            ("conformance-tests", "anyqueue-sqlite"),
            ("conformance-tests", "anyqueue-memory"),
            ("conformance-tests/faults", "anyqueue-sqlite"),
            ("testkit", "anyqueue-sqlite"),
            ("worker", "anyqueue-cli"),
        ] {
            assert_eq!(found(folder, dependency, Kind::Normal), 1, "{folder} -> {dependency}");
        }
        for (folder, dependency) in [
            ("core", "tokio"),
            ("adapters/sqlite", "anyqueue"),
            ("adapters/sqlite", "sqlx"),
            ("conformance-tests/faults", "anyqueue-memory"),
            ("conformance-tests/faults", "anyqueue-conformance"),
            ("testkit", "anyqueue-conformance"),
            ("examples", "anyqueue-sqlite"),
        ] {
            assert_eq!(found(folder, dependency, Kind::Normal), 0, "{folder} -> {dependency}");
        }
    }

    #[test]
    fn dev_dependencies_are_free_except_on_the_command_line() {
        assert_eq!(found("core", "anyqueue-memory", Kind::Dev), 0);
        assert_eq!(found("adapters/sqlite", "anyqueue-conformance", Kind::Dev), 0);
        assert_eq!(found("adapters/sqlite", "anyqueue-cli", Kind::Dev), 1);
    }

    #[test]
    fn the_finding_points_at_the_line() {
        let packages = [package("anyqueue", "core/Cargo.toml", &[("sqlx", Kind::Normal)])];
        let files = [sample("core/Cargo.toml", "[dependencies]\nbytes = \"1\"\nsqlx = \"0.9\"\n")];
        assert_eq!(check(&packages, &files)[0].line, 3);
    }

    #[test]
    fn metadata_is_read() {
        let manifest = root().join("core/Cargo.toml");
        let metadata = serde_json::json!({ "packages": [{
            "name": "anyqueue",
            "manifest_path": manifest,
            "dependencies": [{ "name": "bytes", "kind": null }, { "name": "proptest", "kind": "dev" }],
        }]});
        let packages = parse(&metadata.to_string()).unwrap();
        assert_eq!(packages[0].manifest, "core/Cargo.toml");
        assert_eq!(
            packages[0].dependencies,
            [("bytes".to_owned(), Kind::Normal), ("proptest".to_owned(), Kind::Dev)]
        );
        assert!(parse("{}").is_err(), "metadata without packages would check nothing");
    }
}
