//! Waits for images, and shows the steps of their builds.

use indicatif::ProgressBar;
use runtime::Channel;
use tinwright::image::v1 as pb;
use tinwright::image::v1::ImageState;

use super::super::bar::bar;
use crate::follow;

/// Waits until `image` is ready, and returns it. Fails with the reason if it cannot become ready.
pub(crate) async fn until_ready(channel: &Channel, image: &pb::Image) -> anyhow::Result<pb::Image> {
    let mut steps = Steps { name: &image.name, shown: None };
    let result = |found: Option<pb::Image>| {
        found.iter().for_each(|found| steps.show(found));
        outcome(&image.name, found)
    };
    let ready = follow::until(channel, &image.id, result).await;
    steps.clear();
    ready
}

/// Returns the image once it is ready, an error once it can no longer be, and nothing before.
fn outcome(name: &str, image: Option<pb::Image>) -> Option<Result<pb::Image, String>> {
    let Some(image) = image else { return Some(Err(format!("image {name} was deleted"))) };
    match image.state() {
        ImageState::Ready => Some(Ok(image)),
        ImageState::Failed => Some(Err(format!("image {name} failed: {}", image.state_reason))),
        ImageState::Damaged => {
            Some(Err(format!("image {name} is damaged: {}", image.state_reason)))
        }
        ImageState::Unspecified | ImageState::Uploading | ImageState::Processing => None,
    }
}

/// Shows the present step.
struct Steps<'a> {
    name: &'a str,
    /// The step, and its bar.
    shown: Option<(String, ProgressBar)>,
}

impl Steps<'_> {
    fn show(&mut self, image: &pb::Image) {
        if self.shown.as_ref().is_none_or(|(step, _)| *step != image.step) {
            self.clear();
            let new = || (image.step.clone(), bar(self.name, &image.step, ""));
            self.shown = (!image.step.is_empty()).then(new);
        }
        if let (Some((_, bar)), Some(progress)) = (&self.shown, image.progress) {
            bar.set_length(progress.total_bytes.max(progress.current_bytes));
            bar.set_position(progress.current_bytes);
        }
    }

    fn clear(&mut self) {
        self.shown.take().iter().for_each(|(_, bar)| bar.finish_and_clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(state: ImageState) -> Option<pb::Image> {
        let state_reason = "no partition table".to_owned();
        Some(pb::Image { state: state.into(), state_reason, ..pb::Image::default() })
    }

    #[test]
    fn waiting_ends_when_the_image_is_ready_or_can_no_longer_be() {
        for state in [ImageState::Uploading, ImageState::Processing, ImageState::Unspecified] {
            assert_eq!(outcome("a", image(state)), None, "{state:?}");
        }
        assert!(matches!(outcome("a", image(ImageState::Ready)), Some(Ok(_))));
        for (image, text) in [
            (image(ImageState::Failed), "image a failed: no partition table"),
            (image(ImageState::Damaged), "image a is damaged: no partition table"),
            (None, "image a was deleted"),
        ] {
            assert_eq!(outcome("a", image), Some(Err(text.to_owned())));
        }
    }
}
