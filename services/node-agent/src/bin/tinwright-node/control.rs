//! The node's access to the control plane of its site.
//!
//! ```text
//! kernel's command line ─▶ clock ─▶ trust ─▶ identity: a certificate of purpose node for the boot token, renewed while the node lives
//!                                                └─▶ streams: calls and desired stacks
//! StackKeeper: the desired stack, also while no server is reachable
//! ```
//!
//! A node whose token is refused, or whose certificate expires because no server was reachable for too long, goes on as it is; a restart of the
//! machine gives it another token.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use machine::boot_parameters::BootParameters;
use machine::control_plane::{ControlPlane, ControlPlaneClient};
use machine::identity::MachineIdentity;
use machine::journal::Journal;
use machine::{clock, trust};
use node_agent::Node;
use node_agent::desired_stack::{StackKeeper, StackPort};
use node_agent::streams::ConnectedNode;
use runtime::clock::Clock;
use tinwright::node::v1::AgentHello;
use tinwright::workflow::v1::Holder;
use tokio_util::sync::CancellationToken;

/// File with the id of the current boot.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";
/// File with a new random id at each read (random(4)).
const RANDOM_ID_FILE: &str = "/proc/sys/kernel/random/uuid";

/// A node of a site.
#[derive(Debug)]
pub(crate) struct SiteNode {
    boot: BootParameters,
    holder: Holder,
    journal: Journal,
    node: Node,
}

impl SiteNode {
    /// Reads the parameters of this boot from the file `cmdline`. State is stored in the directory `state`.
    pub(crate) async fn open(cmdline: &Path, state: &Path, node: Node) -> anyhow::Result<Self> {
        let line = fs::read_to_string(cmdline);
        let line = line.with_context(|| cmdline.display().to_string())?;
        let boot = BootParameters::parse(&line)?;
        if let Some(time) = clock::correction(Clock::system().wall(), boot.boot_time) {
            clock::set(time).context("setting the clock")?;
            tracing::info!("clock set to the server's time");
        }
        let holder =
            Holder { boot_id: read_id(BOOT_ID_FILE)?, process_id: read_id(RANDOM_ID_FILE)? };
        let journal = Journal::open(&state.join("control-plane")).await?;
        Ok(Self { boot, holder, journal, node })
    }

    /// Keeps the desired stack running, and the streams open, until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        let (keeper, port) = StackKeeper::open(self.node.clone(), self.journal.clone()).await?;
        let connected = async {
            if let Err(error) = self.connect(port).await {
                tracing::error!(error = format!("{error:#}"), "no control plane");
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = keeper.run() => {}
            () = connected => {}
        }
        Ok(())
    }

    /// Gets an identity, and keeps streams open until it expires.
    async fn connect(&self, stack: StackPort) -> anyhow::Result<()> {
        let Self { boot, holder, journal, node } = self;
        let authority = trust::authority(journal, &boot.boot_url, &boot.ca_sha256).await?;
        let authority = authority.context("the site's certificate authority was not trusted")?;
        let plane = ControlPlane { servers: boot.servers.clone(), authority };
        let client = ControlPlaneClient::new(plane)?;
        let (token, clock) = (&boot.boot_token, Clock::system());
        let identity = MachineIdentity::establish(&client, journal, token, holder, clock).await?;
        let mut identity = identity.context("the boot token was refused")?;
        tracing::info!(hardware.id = identity.hardware_id(), "identity established");
        let Holder { boot_id, process_id } = holder.clone();
        let agent_version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = AgentHello { boot_id, process_id, agent_version };
        let node = ConnectedNode { node: node.clone(), stack, hello };
        tokio::select! {
            () = node.keep_connected(&client) => {}
            () = identity.renew_until_expired(&client, journal) => {
                anyhow::bail!("the certificate has expired: restart the machine to connect again");
            }
        }
        Ok(())
    }
}

/// The flags for the control plane.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Control plane")]
pub(crate) struct ControlArguments {
    /// Connect to the control plane in this file, which is like the kernel's command line [default: not connected]
    #[arg(long, value_name = "FILE")]
    pub(crate) cmdline: Option<PathBuf>,
}

fn read_id(path: &'static str) -> anyhow::Result<String> {
    Ok(fs::read_to_string(path).context(path)?.trim().to_owned())
}
