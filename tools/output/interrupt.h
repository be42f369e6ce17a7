// SIGINT that is meant for another program.
#pragma once

namespace asof {

// As if there had been no SIGINT so far: a terminal sends it to all programs of a pipe.
void forget_sigint();

}  // namespace asof
