#pragma once
#error "no source includes this header"
