// The library in one header. docs/api.md leads from a capture to executed instructions;
// examples/kernel_changes.cpp is a whole program. For C: asof/asof_c.h.
#pragma once
#include "asof/capture.h"
#include "asof/error.h"
#include "asof/flow.h"
#include "asof/text.h"
#include "asof/timeline.h"
#include "asof/types.h"
#include "asof/version.h"
