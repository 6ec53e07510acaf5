//! `anyqueue workers nodes`, `dedicate`, `release`: machines that are dedicated to one application.

use anyqueue_control::registry::{Registry, WorkerInfo, host_name};
use clap::Args;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::{Output, preview};

/// Keeps a machine for the workers of one application
#[derive(Args)]
#[command(after_help = "\
Example: anyqueue workers dedicate video --host gpu-7

From then on only `anyqueue work --application video` starts there. Workers of others that run there continue, and are
named.")]
pub(super) struct Dedicate {
    /// The application
    application: String,
    /// The machine's host name; by default this one
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
}

/// Lets workers of every application start on a machine again
#[derive(Args)]
#[command(after_help = "Example: anyqueue workers release gpu-7")]
pub(super) struct Release {
    /// The machine's host name; by default this one
    host: Option<String>,
}

impl Dedicate {
    pub(super) async fn run(self, registry: &Registry, output: Output) -> Result {
        let host = self.host.unwrap_or_else(host_name);
        registry.dedicate(&host, &self.application).await?;
        let all = registry.list().await?;
        let is_other = |worker: &&WorkerInfo| {
            worker.host == host && worker.application.as_ref() != Some(&self.application)
        };
        let others: Vec<_> = all.workers.iter().filter(is_other).map(|worker| worker.name.as_str()).collect();
        if !others.is_empty() {
            let names = preview(others.join(" ").as_bytes(), 200);
            output.note(&format!("workers of other applications continue there until they end: {names}"));
        }
        let text = format!("{} is kept for {}", preview(host.as_bytes(), 256), self.application);
        output.result(&text, &json!({ "host": host, "application": self.application, "others": others }))
    }
}

impl Release {
    pub(super) async fn run(self, registry: &Registry, output: Output) -> Result {
        let host = self.host.unwrap_or_else(host_name);
        let shown = preview(host.as_bytes(), 256);
        let Some(application) = registry.release(&host).await? else {
            output.note(&format!("{shown} is kept for nobody: see `anyqueue workers nodes`"));
            return Err(Failure::Nothing);
        };
        let text = format!("{shown} was kept for {}", preview(application.as_bytes(), 128));
        output.result(&text, &json!({ "host": host, "application": application }))
    }
}

pub(super) async fn list(registry: &Registry, output: Output) -> Result {
    let nodes = registry.nodes().await?;
    if nodes.is_empty() {
        output.note("no machine is kept for an application");
        return Err(Failure::Nothing);
    }
    for node in &nodes {
        let text =
            format!("{} {}", preview(node.host.as_bytes(), 256), preview(node.application.as_bytes(), 128));
        output.result(&text, &json!(node))?;
    }
    Ok(())
}
