//! Operations of power jobs as text.

use tinwright::power::v1::Operation;
use tinwright::power::v1::operation::boot::Mode;
use tinwright::power::v1::operation::{Boot, Drive, Power, What};

use crate::output::word;

/// Returns text such as `soft-off` or `boot pxe once`.
pub(super) fn operation(operation: &Operation) -> String {
    match &operation.what {
        Some(What::Power(power)) => {
            word(Power::try_from(*power).unwrap_or_default().as_str_name(), "POWER_")
        }
        Some(What::Boot(to)) => format!("boot {}", boot(to)),
        Some(What::InsertMedia(media)) => format!("insert-media {}", drive(media.drive)),
        Some(What::EjectMedia(from)) => format!("eject-media {}", drive(*from)),
        None => String::new(), // a kind that only a newer server knows
    }
}

/// Returns `cd` or `usb`.
fn drive(drive: i32) -> String {
    match Drive::try_from(drive).unwrap_or_default() {
        Drive::Unspecified | Drive::Cd => "cd".into(),
        Drive::Usb => "usb".into(),
    }
}

/// Returns text such as `disk always by legacy`; `none` for the machine's own boot order.
pub(super) fn boot(boot: &Boot) -> String {
    let device = word(boot.device().as_str_name(), "DEVICE_");
    if matches!(device.as_str(), "none" | "unspecified") {
        return "none".to_owned();
    }
    let often = if boot.persistent { "always" } else { "once" };
    match boot.mode() {
        Mode::Unspecified => format!("{device} {often}"),
        mode @ (Mode::Uefi | Mode::Legacy) => {
            format!("{device} {often} by {}", word(mode.as_str_name(), "MODE_"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tinwright::power::v1::operation::boot::Device;

    #[test]
    fn an_operation_is_shown_as_the_command_that_requests_it() {
        let soft_off =
            Operation { what: Some(What::Power(Power::SoftOff.into())), ..Default::default() };
        assert_eq!(operation(&soft_off), "soft-off");
        let mut disk = Boot { persistent: true, ..Boot::default() };
        disk.set_device(Device::Disk);
        disk.set_mode(Mode::Legacy);
        let disk = Operation { what: Some(What::Boot(disk)), ..Default::default() };
        assert_eq!(operation(&disk), "boot disk always by legacy");
        assert_eq!(boot(&Boot::default()), "none");
    }
}
