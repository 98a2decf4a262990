// Whether the host requires a login. Its login page is at the address of the page itself.

import { onUnauthorized } from "../api/http";

class Login {
  /** Why a login is necessary, in the words of the host. */
  message = $state<string>();

  constructor() {
    onUnauthorized((message) => (this.message = message));
  }
}

export const login = new Login();
