//! The content of images, for the machines that are installed with them.

use std::net::IpAddr;
use std::time::SystemTime;

use runtime::neighbour::NeighbourCheck;

use super::BootScripts;

impl BootScripts {
    /// Returns the id of a live workflow of the machine at `source` that has the image with the stored
    /// file `digest`, if there is one.
    pub fn workflow_with_image(
        &self,
        digest: &str,
        source: IpAddr,
        neighbour: NeighbourCheck,
        now: SystemTime,
    ) -> Option<String> {
        let machine = self.at(source, now)?;
        self.check_owner(&machine, neighbour).ok()?;
        let mut workflows = machine.workflows.iter();
        let found = workflows.find(|workflow| workflow.image_file.as_deref() == Some(digest));
        found.map(|workflow| workflow.id.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use runtime::feed::FeedEvent;
    use runtime::neighbour::SourceCheck;
    use tinwright::HardwareId;
    use tinwright::workflow::v1::{Workflow, WorkflowImage};

    use super::*;
    use crate::Mac;
    use crate::bootscripts::tests::{MAC, at, boots_at, fleet_of, now, site};

    const DIGEST: &str = "ab12";

    #[test]
    fn a_machine_reads_the_image_of_its_live_workflow_and_nobody_else_does() {
        let (id, mut site) = (HardwareId::new(), site());
        site.serving.source_check = SourceCheck::Neighbour;
        let boots = boots_at(id, site);
        let fleet = fleet_of(&boots);
        let image = WorkflowImage { stored_sha256: DIGEST.into(), ..WorkflowImage::default() };
        fleet.workflow(FeedEvent::Snapshot(vec![Workflow {
            id: "w-2".into(),
            hardware_id: id.to_string(),
            image: Some(image),
            ..Workflow::default()
        }]));
        let own = NeighbourCheck::Owner(MAC);
        let read = |digest: &str, source: &str, owner| {
            boots.workflow_with_image(digest, at(source), owner, now())
        };
        assert_eq!(read(DIGEST, "192.0.2.10", own).as_deref(), Some("w-2"));
        assert_eq!(read("cd34", "192.0.2.10", own), None, "another image");
        assert_eq!(
            read(DIGEST, "192.0.2.20", NeighbourCheck::Owner(Mac([2, 0, 0, 0, 0, 2]))),
            None
        );
        assert_eq!(read(DIGEST, "192.0.2.99", own), None, "an address of no machine");
        let other = NeighbourCheck::Owner(Mac([2, 0, 0, 0, 0, 9]));
        assert_eq!(read(DIGEST, "192.0.2.10", other), None, "its address in the hands of another");
        fleet.workflow(FeedEvent::Snapshot(vec![]));
        assert_eq!(read(DIGEST, "192.0.2.10", own), None, "the workflow has ended");
    }
}
