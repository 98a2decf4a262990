//! Expiry of certificates (X.509).

use std::time::{Duration, SystemTime};

use simple_asn1::{ASN1Block, from_der};

/// Time before the expiry of a certificate from which the log warns.
const WARNING: Duration = Duration::from_secs(7 * 24 * 3600);

/// Checks that a certificate has not expired, and warns if it soon will. A certificate that cannot be parsed here is
/// left to rustls.
///
/// # Errors
/// The reason why the certificate cannot be used.
pub(super) fn check(certificate: &[u8], now: SystemTime) -> Result<(), String> {
    let Some((expiry, date)) = not_after(certificate) else { return Ok(()) };
    let Ok(left) = expiry.duration_since(now) else {
        return Err(format!("it has expired on {date} UTC; renew it"));
    };
    if left < WARNING {
        tracing::warn!("the certificate of the server expires on {date} UTC; renew it");
    }
    Ok(())
}

/// Returns the time at which a certificate expires, also as a date. `None` if it has fields of an unknown kind, or is
/// not a certificate.
fn not_after(certificate: &[u8]) -> Option<(SystemTime, String)> {
    let blocks = from_der(certificate).ok()?;
    let [ASN1Block::Sequence(_, certificate)] = blocks.as_slice() else { return None };
    let ASN1Block::Sequence(_, signed) = certificate.first()? else { return None };
    // The validity is the first sequence of two times.
    let not_after = signed.iter().find_map(|field| match field {
        ASN1Block::Sequence(_, validity) => match validity.as_slice() {
            [
                ASN1Block::UTCTime(..) | ASN1Block::GeneralizedTime(..),
                ASN1Block::UTCTime(_, not_after) | ASN1Block::GeneralizedTime(_, not_after),
            ] => Some(not_after),
            _ => None,
        },
        _ => None,
    })?;
    // A time before 1970 counts as 1970, which is in the past as well.
    let seconds = u64::try_from(not_after.assume_utc().unix_timestamp()).unwrap_or_default();
    Some((SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), not_after.date().to_string()))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(year: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(1990, 1, 1), date_time_ymd(year, 3, 7));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_expiry_is_read_in_both_formats_of_times() {
        for (year, seconds) in [(2020, 1_583_539_200), (2060, 2_845_843_200)] {
            let (expiry, date) = not_after(&certificate(year)).unwrap();
            assert_eq!(expiry, SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(date, format!("{year}-03-07"));
        }
        assert_eq!(not_after(b"no certificate"), None);
    }

    #[test]
    fn an_expired_certificate_is_an_error() {
        let certificate = certificate(2020);
        let at = |seconds| check(&certificate, SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(1_583_539_199), Ok(()));
        assert_eq!(at(1_583_539_201), Err("it has expired on 2020-03-07 UTC; renew it".into()));
        assert_eq!(check(b"x", SystemTime::now()), Ok(()));
    }
}
