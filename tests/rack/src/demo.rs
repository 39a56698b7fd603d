//! Two bare machines become two systems that know who they are, before a newcomer's eyes.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use rack::bmc::Redfish;
use rack::lab::Lab;
use rack::machines::{Firmware, Hypervisor, Machine};
use rack::provision::{Operator, image, images};
use rack::server::Server;
use rack::setup;

/// How long one machine may take to be active.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// Says `what`, with the time since the beginning.
#[derive(Clone, Copy, Debug)]
struct Story(Instant);

impl Story {
    fn say(self, what: impl std::fmt::Display) {
        eprintln!("{:>5.0} s  {what}", self.0.elapsed().as_secs_f64());
    }
}

/// Boots and provisions the rack; then leaves it up until the newcomer presses Enter, unless it is to go `down`.
pub(crate) fn up(down: bool) -> anyhow::Result<()> {
    let story = Story(Instant::now());
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "the rack makes network namespaces: run it as root"
    );
    setup::packages()?;
    story.say("building");
    crate::suite::build()?;
    story.say("making the operating system installation environment and the images");
    let (osie, images) = (rack::server::osie()?, images()?);
    let mut lab = Lab::new()?;
    story.say("starting libvirt and the BMCs");
    let hypervisor = Hypervisor::start(&mut lab)?;
    let machines = [Machine::new(&lab, 1, Firmware::Bios)?, Machine::new(&lab, 2, Firmware::Uefi)?];
    for machine in &machines {
        hypervisor.define(&lab, machine)?;
    }
    let redfish = Redfish::start(&mut lab, &hypervisor)?;
    let server = Server::new(&lab, &osie, &images)?;
    server.start(&mut lab)?;
    story.say(format!("tinwright serves on https://{}", server.api));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(provision(story, &server, &redfish, &machines, &images))?;
    story.say("both machines are active");
    if !down {
        eprintln!(
            "\nLook around from another terminal:\n  export TINWRIGHT_SERVER=https://{} TINWRIGHT_DATA={}\n  {} hardware list\n\nEnter takes the rack down.",
            server.api,
            server.data.display(),
            setup::program("tinwright").display(),
        );
        std::io::stdin().read_line(&mut String::new())?;
    }
    Ok(())
}

async fn provision(
    story: Story,
    server: &Server,
    redfish: &Redfish,
    machines: &[Machine],
    images: &std::path::Path,
) -> anyhow::Result<()> {
    let operator = Operator::new(server.channel().await?);
    let template = operator.template().await.context("the template")?;
    let mut waiting = tokio::task::JoinSet::new();
    for machine in machines {
        let id = operator.rack(machine).await.context("the hardware")?;
        operator.wire(&id, machine, redfish).await.context("the BMC")?;
        let image = image(images, machine.firmware)?;
        let instance = operator.install(&id, &template, &machine.name, &image).await?;
        let (operator, name) = (operator.clone(), machine.name.clone());
        waiting.spawn(async move {
            let tell = |instance: &tinwright::instance::v1::Instance| {
                let reason = &instance.state_reason;
                let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                story.say(format!("{name} is {}{reason}", instance.state));
            };
            let done = operator.until(&instance.id, "active", PATIENCE, tell).await;
            done.with_context(|| name.clone())
        });
    }
    while let Some(done) = waiting.join_next().await {
        done??;
    }
    Ok(())
}
