//! The example in TypeScript: compiled against types that are made from the service's description, and run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::bed::Bed;

/// No step takes as long; one that does has hung.
const PATIENCE: Duration = Duration::from_mins(3);
/// Where `cargo xtask setup` puts the compiler and what makes the types.
const TOOLS: &str = "anyqueue/typescript";
const SETUP: &str =
    "run `cargo xtask setup`, which installs Node.js and what clients/typescript/package-lock.json names";

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/typescript")
}

/// The folder of the tools, in the versions of the example.
fn tools() -> PathBuf {
    let home = || std::env::home_dir().map(|home| home.join(".local/share"));
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home).unwrap();
    let lock = |folder: &Path| std::fs::read_to_string(folder.join("package-lock.json")).ok();
    let tools = data.join(TOOLS);
    assert!(lock(&tools) == lock(&example()), "{} is missing or old: {SETUP}", tools.display());
    tools.join("node_modules/.bin")
}

/// What a program writes, and whether it succeeds.
async fn run(program: &Path, arguments: &[&str], folder: &Path) -> (bool, String) {
    let run = Command::new(program).args(arguments).current_dir(folder).kill_on_drop(true).output();
    let ran = tokio::time::timeout(PATIENCE, run).await.expect("an end");
    let ran = ran.unwrap_or_else(|error| panic!("{} does not start ({error}): {SETUP}", program.display()));
    (ran.status.success(), String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned())
}

/// The example beside types of this description, and what the compiler says of them.
async fn compiled(description: &str) -> (TempDir, Result<(), String>) {
    let folder = tempfile::tempdir().unwrap();
    for file in ["worker.ts", "tsconfig.json", "package.json"] {
        std::fs::copy(example().join(file), folder.path().join(file)).unwrap();
    }
    std::fs::write(folder.path().join("openapi.json"), description).unwrap();
    let tools = tools();
    let made = ["openapi.json", "-o", "api.d.ts"];
    let (is_made, said) = run(&tools.join("openapi-typescript"), &made, folder.path()).await;
    assert!(is_made, "{said}");
    let options = ["--project", ".", "--noEmit", "false", "--outDir", "."];
    let (compiles, said) = run(&tools.join("tsc"), &options, folder.path()).await;
    (folder, if compiles { Ok(()) } else { Err(said) })
}

#[tokio::test]
async fn the_example_compiles_against_the_description_and_works() {
    let (folder, compiles) = compiled(&anyqueue_server::openapi()).await;
    compiles.unwrap();
    std::fs::write(folder.path().join("main.mjs"), include_str!("typescript/main.mjs")).unwrap();
    let bed = Bed::new().await;
    let url = format!("http://{}", bed.client.0);
    let (succeeds, said) = run(Path::new("node"), &["main.mjs", &url], folder.path()).await;
    assert!(succeeds, "{said}");
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let once = json!({ "works": 1, "fails": 1, "takes long": 1, "is cancelled": 1, "last": 1 });
    assert_eq!((&said["runs"], &said["refused"]), (&once, &json!("invalid_input")));
    let mut tasks = Vec::new();
    for id in said["ids"].as_array().unwrap() {
        let path = format!("/v1/tasks/{}?partition=jobs", id.as_str().unwrap());
        tasks.push(bed.client.get(&path).await.ok());
    }
    let states: Vec<_> = tasks.iter().map(|task| task["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["succeeded", "scheduled", "succeeded", "cancelled", "succeeded"]);
    assert_eq!(tasks[0]["result"], json!({ "said": r#"{"kind":"works"}"# }));
    assert!(tasks[1]["errors"].to_string().contains("Error: broke"), "{}", tasks[1]);
    assert_eq!((&tasks[2]["result"], &tasks[2]["attempt"]), (&json!("in the end"), &json!(1)));
}

#[tokio::test]
async fn a_description_that_has_changed_does_not_compile() {
    let changed = anyqueue_server::openapi().replace("\"deliveries\"", "\"handed_out\"");
    let (_folder, compiles) = compiled(&changed).await;
    let said = compiles.unwrap_err();
    assert!(said.contains("worker.ts") && said.contains("deliveries"), "{said}");
}
