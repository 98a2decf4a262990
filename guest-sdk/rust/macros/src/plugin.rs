//! Expansion of the attribute `#[plugin]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Error, ImplItem, ImplItemFn, ItemImpl, Result};

use crate::function::{NameOption, check, last_name, snake_case};
use crate::point::HookPoint;

pub struct Options {
    name: NameOption,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        Ok(Self { name: NameOption::parse("plugin", input)? })
    }
}

pub fn expand(options: Options, hooks: ItemImpl) -> Result<TokenStream> {
    if let Some((_, trait_path, _)) = &hooks.trait_ {
        return Err(Error::new_spanned(
            trait_path,
            "the hooks of a plugin are in an `impl` of its type, without a trait",
        ));
    }
    if !hooks.generics.params.is_empty() {
        return Err(Error::new_spanned(&hooks.generics, "a plugin cannot be generic"));
    }
    let ty = &hooks.self_ty;
    let Some(type_name) = last_name(ty) else {
        return Err(Error::new_spanned(ty, "a plugin is a type of this crate, such as `struct Censor;`"));
    };
    let name = options.name.or(snake_case(&type_name));
    let fields = hooks.items.iter().map(|item| hook(item, ty)).collect::<Result<Vec<_>>>()?;
    Ok(quote! {
        #hooks

        impl ::hatchery_guest::Plugin for #ty {
            const NAME: &'static str = #name;
            const HOOKS: ::hatchery_guest::__private::Hooks =
                ::hatchery_guest::__private::Hooks { #(#fields,)* ..::hatchery_guest::__private::Hooks::NONE };
        }
    })
}

/// Returns the struct field of a hook.
fn hook(item: &ImplItem, ty: &syn::Type) -> Result<TokenStream> {
    let ImplItem::Fn(ImplItemFn { sig, .. }) = item else {
        return Err(Error::new_spanned(item, "this `impl` may contain only hooks; move other items to another `impl`"));
    };
    let ident = &sig.ident;
    let Some(point) = HookPoint::find_plugin_hook(ident) else {
        let message = format!(
            "`{ident}` is not a hook; hooks are {}; move other functions to another `impl`",
            HookPoint::plugin_names()
        );
        return Err(Error::new_spanned(ident, message));
    };
    if let Some(receiver) = sig.receiver() {
        let message = "a hook takes no `self`, since a plugin keeps nothing between calls; use the session's state";
        return Err(Error::new_spanned(receiver, message));
    }
    check(sig, "hook")?;
    let closure = point.closure("hook", sig, &quote!(<#ty>::#ident))?;
    Ok(quote!(#ident: ::core::option::Option::Some(#closure)))
}
