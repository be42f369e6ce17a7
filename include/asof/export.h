// ASOF_EXPORT marks what libasof.so exports; everything else in it is hidden. C and C++.
#pragma once

#define ASOF_EXPORT __attribute__((visibility("default")))
