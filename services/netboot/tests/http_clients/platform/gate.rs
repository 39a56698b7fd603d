//! The life of a boot gate: from the order of a machine to its return, with restarts of the machine and of the control plane.

use tinwright::hardware::v1 as hw;

use super::*;

/// The script of another machine, on which nothing was ordered.
const OTHER_SCRIPT: &str = "/02-00-00-00-00-02/auto.ipxe";
const START_SCRIPT: &str = "/platform/start.ipxe";

/// Puts another machine beside ours.
fn put_other_machine(lab: &Lab) {
    let address = hw::Address { address: OTHER.into(), prefix_length: 8, gateway: String::new() };
    let interface = hw::Interface {
        mac: "02:00:00:00:00:02".into(),
        dhcp: Some(hw::Dhcp { address: Some(address), ..hw::Dhcp::default() }),
        netboot: Some(hw::Netboot { allow_pxe: true, ..hw::Netboot::default() }),
        ..hw::Interface::default()
    };
    lab.fleet.hardware(FeedEvent::Put(hw::Hardware {
        id: tinwright::HardwareId::new().to_string(),
        architecture: "x86_64".into(),
        interfaces: vec![interface],
        ..hw::Hardware::default()
    }));
}

impl Lab {
    /// Returns our machine's instance, as the control plane has it.
    fn record(&self, state: State, gate: Option<BootGate>) -> Instance {
        let boot = PlatformBoot { boot_url: START_SCRIPT.into(), ..PlatformBoot::default() };
        Instance {
            id: "i".into(),
            state: state.into(),
            hardware_id: self.id.to_string(),
            generation: 3,
            os: Some(instance::Os::Platform(boot)),
            boot_gate: gate,
            ..Instance::default()
        }
    }

    /// Returns the statuses of the script and of the private file, as the machine with this MAC and UUID asks for them.
    async fn statuses(&self, source: &str, script: &str, uuid: &str) -> [u16; 2] {
        let script = self.status(source, &format!("{script}?uuid={uuid}")).await;
        [script, self.status(source, &format!("{START_SCRIPT}?uuid={uuid}")).await]
    }

    /// Returns the statuses that the right machine gets.
    async fn right(&self) -> [u16; 2] {
        self.statuses(MACHINE, SCRIPT, UUID).await
    }

    /// Asserts that one wrong value is enough to be refused: the UUID, the address, or the MAC.
    async fn check_wrong_ones(&self, when: &str) {
        for (source, script, uuid) in
            [(MACHINE, SCRIPT, OTHER_UUID), (MACHINE, SCRIPT, ""), (OTHER, SCRIPT, UUID)]
        {
            let refused = self.statuses(source, script, uuid).await;
            assert_eq!(refused, [403; 2], "{when}: {source} {script} {uuid}");
        }
        let refused = self.status(MACHINE, &format!("{OTHER_SCRIPT}?uuid={UUID}")).await;
        assert_eq!(refused, 403, "{when}: the MAC of another machine");
    }
}

#[tokio::test]
async fn a_gate_is_open_from_completion_to_decommission_whatever_restarts() {
    let lab = lab().await;
    put_other_machine(&lab);
    assert_eq!(lab.right().await[1], 403, "nothing was ordered");
    lab.fleet.instance(FeedEvent::Put(lab.record(State::Queued, None)));
    assert_eq!(lab.right().await, [403; 2], "ordered");
    lab.fleet.instance(FeedEvent::Put(lab.record(State::Provisioning, None)));
    assert_eq!(lab.right().await, [403; 2], "being built");
    lab.check_wrong_ones("being built").await;

    lab.fleet.instance(FeedEvent::Put(lab.record(State::Provisioning, Some(open_gate()))));
    assert_eq!(lab.right().await, [200; 2], "complete");
    lab.check_wrong_ones("complete").await;
    for restart in 1..=3 {
        lab.fleet.instance(FeedEvent::Put(lab.record(State::Active, Some(open_gate()))));
        assert_eq!(lab.right().await, [200; 2], "restart {restart}");
    }

    // The control plane restarts: nobody is let in before the records were read again.
    lab.fleet.instance(FeedEvent::Disconnected);
    assert_eq!(lab.right().await, [503; 2], "the store is down");
    assert_eq!(lab.statuses(OTHER, SCRIPT, UUID).await, [403, 503], "the store is down");
    let active = lab.record(State::Active, Some(open_gate()));
    lab.fleet.instance(FeedEvent::Snapshot(vec![active]));
    assert_eq!(lab.right().await, [200; 2], "the control plane is back");
    lab.check_wrong_ones("the control plane is back").await;

    let closed = BootGate { open: false, ..open_gate() };
    lab.fleet.instance(FeedEvent::Put(lab.record(State::Deprovisioning, Some(closed))));
    let [script, file] = lab.right().await;
    assert!(script != 200 && file == 403, "decommissioned: {script} {file}");
    lab.fleet.instance(FeedEvent::Disconnected);
    assert_eq!(lab.right().await, [503; 2], "decommissioned, and the store is down");
    lab.fleet.instance(FeedEvent::Snapshot(vec![]));
    assert_eq!(lab.right().await[1], 403, "returned");
}
