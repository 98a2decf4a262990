//! Credentials: passwords, Docker's credential helpers, and which registries may use plain HTTP.

use super::*;

#[tokio::test]
async fn a_registry_with_passwords_rejects_a_wrong_one() -> Result<()> {
    let Some(stage) = Stage::around(Registry::start_with_password().await?)? else { return Ok(()) };
    let reference = stage.registry.reference("swap:1");
    let push = async |variables: &[(&str, &str)]| {
        hatchery_with(&stage.author.served(), &["push", "swap.wasm", &reference], variables).await
    };
    let login = format!("log in with `docker login {}`", stage.registry.address);
    let address = stage.registry.address.as_str();
    let named = format!("or set HATCHERY_REGISTRY={address}, HATCHERY_REGISTRY_USER and HATCHERY_REGISTRY_PASSWORD");
    let stranger = refusal(push(&[]).await?)?;
    contains(&stranger, &["denies anonymous users access to", &reference, &login, &named]);
    let registry = ("HATCHERY_REGISTRY", address);
    let wrong = [registry, ("HATCHERY_REGISTRY_USER", REGISTRY_USER), ("HATCHERY_REGISTRY_PASSWORD", "guess")];
    contains(&refusal(push(&wrong).await?)?, &["denies `ada` access to"]);
    contains(&stage.refusal(&[&reference]).await?, &["denies anonymous users access to", &login]);
    let right =
        [registry, ("HATCHERY_REGISTRY_USER", REGISTRY_USER), ("HATCHERY_REGISTRY_PASSWORD", REGISTRY_PASSWORD)];
    let for_any = refusal(push(&right[1..]).await?)?;
    contains(
        &for_any,
        &["HATCHERY_REGISTRY is not set, but HATCHERY_REGISTRY_PASSWORD is", "set HATCHERY_REGISTRY to its"],
    );
    let elsewhere = [("HATCHERY_REGISTRY", "registry.example"), right[1], right[2]];
    contains(&refusal(push(&elsewhere).await?)?, &["denies anonymous users access to"]);
    content(push(&right).await?)?;

    // The base64 of the user, a colon and the password.
    let docker = json!({"auths": {&stage.registry.address: {"auth": "YWRhOm9wZW4gc2VzYW1l"}}});
    stage.author.write("docker/config.json", docker.to_string())?;
    let docker = stage.author.file("docker");
    let docker = [("DOCKER_CONFIG", docker.to_str().context("UTF-8")?)];
    content(hatchery_with(&stage.operator.served(), &["pull", ".", &reference], &docker).await?)?;
    assert_eq!(stage.pulled("swap.wasm")?, swap(Older)?);
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn a_credential_helper_of_docker_is_asked_for_the_password() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let Some(stage) = Stage::around(Registry::start_with_password().await?)? else { return Ok(()) };
    let address = &stage.registry.address;
    let helper = format!(
        "#!/bin/sh\nread asked\n[ \"$1 $asked\" = 'get {address}' ] || {{ echo 'credentials not found'; exit 1; }}\n\
         echo '{{\"ServerURL\": \"{address}\", \"Username\": \"{REGISTRY_USER}\", \"Secret\": \"{REGISTRY_PASSWORD}\"}}'\n"
    );
    stage.author.write("bin/docker-credential-vault", helper)?;
    fs::set_permissions(stage.author.file("bin/docker-credential-vault"), fs::Permissions::from_mode(0o755))?;
    let path = format!("{}:{}", stage.author.file("bin").display(), std::env::var("PATH")?);
    let docker = stage.author.file("docker");
    let push = async |config: Value| {
        stage.author.write("docker/config.json", config.to_string())?;
        let variables = [("DOCKER_CONFIG", docker.to_str().context("UTF-8")?), ("PATH", &path)];
        let reference = stage.registry.reference("swap:1");
        hatchery_with(&stage.author.served(), &["push", "swap.wasm", &reference], &variables).await
    };
    let elsewhere = refusal(push(json!({"credHelpers": {"elsewhere.example": "vault"}})).await?)?;
    contains(&elsewhere, &["denies anonymous users access to"]);
    let broken = refusal(push(json!({"credHelpers": {address: "broken"}})).await?)?;
    contains(&broken, &["docker-credential-broken failed to provide the login for", "No such file"]);
    for config in [json!({"credHelpers": {address: "vault"}}), json!({"credsStore": "vault"})] {
        content(push(config).await?)?;
    }
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn a_credential_helper_is_asked_for_docker_hub_as_docker_asks() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let operator = Folder::empty()?;
    let asked = operator.file("asked");
    let helper = format!("#!/bin/sh\ncat > '{}'\necho 'credentials not found'\nexit 1\n", asked.display());
    operator.write("bin/docker-credential-vault", helper)?;
    fs::set_permissions(operator.file("bin/docker-credential-vault"), fs::Permissions::from_mode(0o755))?;
    operator.write("docker/config.json", json!({"credsStore": "vault"}).to_string())?;
    let path = format!("{}:{}", operator.file("bin").display(), std::env::var("PATH")?);
    let docker = operator.file("docker");
    // No server is behind this proxy, so nothing leaves this machine.
    let variables = [
        ("DOCKER_CONFIG", docker.to_str().context("UTF-8")?),
        ("PATH", &path),
        ("HTTPS_PROXY", "http://127.0.0.1:1"),
        ("NO_PROXY", ""),
    ];
    let args = ["pull", ".", "docker.io/team/swap:1"];
    contains(
        &refusal(hatchery_with(&operator.served(), &args, &variables).await?)?,
        &["index.docker.io cannot be reached"],
    );
    assert_eq!(fs::read_to_string(asked)?, "https://index.docker.io/v1/");
    Ok(())
}

#[tokio::test]
async fn plain_http_to_other_machines_needs_a_flag() -> Result<()> {
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    stage.push("swap:1", &[]).await?;
    // This address reaches the same registry, and is not one of those that are known to stay on this machine.
    let port = stage.registry.address.rsplit_once(':').context("a port")?.1;
    let reference = format!("0.0.0.0:{port}/swap:1");
    let pull = async |args: &[&str]| {
        let args = [&["pull", ".", &reference][..], args].concat();
        hatchery_with(&stage.operator.served(), &args, &[("NO_PROXY", "*")]).await
    };
    let answer = refusal(pull(&[]).await?)?;
    contains(
        &answer,
        &[&format!("the registry 0.0.0.0:{port} cannot be reached"), "allow plain HTTP (see --plain-http)"],
    );
    content(pull(&["--plain-http"]).await?)?;
    Ok(())
}
