//! The node and its listeners, from the start to the ordered exit.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use containers::{Launcher, Limits, Quotes};
use imageapi::Secrets;
use node_agent::kernel::Kernel;
use node_agent::linux::{
    ContainerSettings, LinuxContainers, LinuxStorage, StorageSettings, missing_interfaces,
};
use node_agent::{Node, NodeOptions};
use runtime::clock::Clock;
use runtime::serve::{self, ConnectionLimits, Transport};
use runtime::supervise::{self, Tier};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::arguments::{Arguments, CommandQuotes};
use crate::control::SiteNode;
use crate::http::Api;
use crate::listeners::Listeners;
use crate::{SUPERVISE, log_retention, serve_unix};

/// The time for which idle connections are kept if that is not limited.
const UNLIMITED_IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// The smallest limit of a request's head that hyper accepts.
const MIN_HEAD_BYTES: usize = 8192;

/// Serves until `stop`.
pub(crate) async fn run(arguments: &Arguments, stop: CancellationToken) -> anyhow::Result<()> {
    let listeners = Listeners::bind(arguments).await?;
    for missing in missing_interfaces() {
        tracing::warn!(
            module = missing.module,
            "kernel module not loaded: no {}",
            missing.used_for
        );
    }
    let node = open(arguments).await?;
    let grace = arguments.http.graceful_timeout;
    let [mut edges, mut inner] = [Tier::default(), Tier::default()];
    serve(arguments, listeners, &node, &mut edges);
    let (logs, retention) = (&arguments.storage.log_directory, arguments.containers.log_retention);
    let removal = log_retention::run(logs.clone(), retention, node.clone(), inner.stop.clone());
    inner.spawn(removal);
    if let Some(cmdline) = &arguments.control.cmdline {
        let state = &arguments.storage.state_directory;
        let site = SiteNode::open(cmdline, state, node.clone()).await?;
        let (runtime, stop) = (tokio::runtime::Handle::current(), inner.stop.clone());
        // On a thread of its own: the retries of calls are no futures that may move between threads.
        let site = move || runtime.block_on(site.run(stop));
        inner.spawn(async { tokio::task::spawn_blocking(site).await? });
    }
    tracing::info!("node ready");
    let outcome = supervise::run([edges, inner], stop, grace).await;
    if timeout(grace, node.close()).await.is_err() {
        tracing::warn!(?grace, "calls under way were left: the next start finishes or undoes them");
    }
    tracing::info!("stopped; attachments, mounts and containers stay as they are");
    outcome
}

/// Creates the directories, and opens the node.
async fn open(arguments: &Arguments) -> anyhow::Result<Node> {
    let storage = &arguments.storage;
    let runs = storage.state_directory.join("runs");
    create_directory(&runs)?;
    create_directory(&storage.log_directory)?;
    let clock = Clock::system();
    let linux_storage = LinuxStorage::open(StorageSettings {
        mount_directory: storage.mount_directory.clone(),
        upper_directory: upper_directory(arguments),
        upper_max_bytes: storage.upper_size,
        iscsiadm: storage.iscsiadm.clone(),
        lazy_unmount: storage.lazy_unmount,
    });
    let linux_storage = linux_storage.await.context("opening the mount directory")?;
    let linux_containers =
        LinuxContainers::new(container_settings(arguments, &runs), clock.clone());
    let kernel =
        Kernel { storage: Arc::new(linux_storage), containers: Arc::new(linux_containers) };
    Ok(Node::open(options(arguments), kernel, clock).await?)
}

fn upper_directory(arguments: &Arguments) -> PathBuf {
    let storage = &arguments.storage;
    storage.upper_directory.as_ref().unwrap_or(&storage.mount_directory).clone()
}

fn create_directory(path: &Path) -> anyhow::Result<()> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.with_context(|| format!("creating {}", path.display()))
}

fn options(arguments: &Arguments) -> NodeOptions {
    let (storage, containers, api) = (&arguments.storage, &arguments.containers, &arguments.api);
    let mut options = NodeOptions::new(storage.state_directory.join("journal"));
    options.mount_directory.clone_from(&storage.mount_directory);
    options.upper_directory = upper_directory(arguments);
    options.log_directory.clone_from(&storage.log_directory);
    // A sweep without a pause would never end.
    options.sweep_period = storage.collection_interval.max(Duration::from_millis(1));
    options.stop_grace = containers.stop_grace;
    options.systemd_stop_grace = containers.systemd_stop_grace;
    options.delete_releases_owner = api.delete_releases_owner;
    options.show_secrets = api.show_secrets;
    options
}

fn container_settings(arguments: &Arguments, runs: &Path) -> ContainerSettings {
    let containers = &arguments.containers;
    ContainerSettings {
        runs: runs.to_owned(),
        launcher: Launcher::own_program(SUPERVISE),
        quotes: match containers.command_quotes {
            CommandQuotes::Keep => Quotes::Keep,
            CommandQuotes::Strip => Quotes::Strip,
        },
        limits: Limits {
            max_processes: containers.container_processes,
            max_memory_bytes: containers.container_memory,
        },
        honour_namespaces: containers.honour_namespaces,
        stop_grace: containers.stop_grace,
        systemd_stop_grace: containers.systemd_stop_grace,
        max_log_bytes: containers.log_size,
    }
}

/// Starts to serve the listeners.
fn serve(arguments: &Arguments, listeners: Listeners, node: &Node, edges: &mut Tier) {
    let (http, tls) = (&arguments.http, &arguments.tls);
    let api = |read_timeout, write_timeout| Api {
        node: node.clone(),
        options: imageapi::DecodeOptions { rbd_monitor_ports: arguments.api.rbd_monitor_ports },
        secrets: if arguments.api.show_secrets { Secrets::Shown } else { Secrets::Masked },
        read_timeout,
        write_timeout,
    };
    let Listeners { http: plain, https, unix } = listeners;
    if let Some(socket) = unix {
        let router = api(Duration::ZERO, Duration::ZERO).router();
        let head = head_bytes(arguments);
        edges.spawn(serve_unix::serve(socket, router, head, edges.stop.clone()));
    }
    if let Some(listener) = plain {
        let router = api(http.read_timeout, http.write_timeout).router();
        let (limits, transport) =
            (limits(arguments, http.listen_limit), Transport::AnonymousPlaintext);
        let stop = edges.stop.clone();
        edges.spawn(serve::limited_tcp(listener, transport, limits, router, stop));
    }
    if let Some((listener, config)) = https {
        let read_timeout = tls.tls_read_timeout.unwrap_or(http.read_timeout);
        let router =
            api(read_timeout, tls.tls_write_timeout.unwrap_or(http.write_timeout)).router();
        let limits = limits(arguments, tls.tls_listen_limit.unwrap_or(http.listen_limit));
        let (transport, stop) = (Transport::Tls(config), edges.stop.clone());
        edges.spawn(serve::limited_tcp(listener, transport, limits, router, stop));
    }
}

fn limits(arguments: &Arguments, connections: usize) -> ConnectionLimits {
    let idle = arguments.http.cleanup_timeout;
    ConnectionLimits {
        total: if connections == 0 { usize::MAX } else { connections },
        max_head_bytes: head_bytes(arguments),
        head_timeout: if idle.is_zero() { UNLIMITED_IDLE } else { idle },
        ..ConnectionLimits::default()
    }
}

fn head_bytes(arguments: &Arguments) -> usize {
    let size = usize::try_from(arguments.http.max_header_size).unwrap_or(usize::MAX);
    size.max(MIN_HEAD_BYTES)
}
